"""The verb inspect-masks: look at what masking does before a long run."""

import argparse
from pathlib import Path

from bertkit.cli.answers import add_json, answer
from bertkit.config.fields import add_flags, from_flags
from data_pipelines.masks.config import MaskConfig
from data_pipelines.vocab.tokenizer_file import find_tokenizer


def inspect_masks(parser: argparse.ArgumentParser):
    parser.epilog = (
        "examples:\n"
        "  bertkit inspect-masks --data shards --unit word\n"
        '  bertkit inspect-masks --tokenizer my-tokenizer "Some text to mask." --rate 0.3\n'
        "  bertkit inspect-masks --data shards --rate 0.3 --final-rate 0.15 --steps 10000"
    )
    parser.add_argument("text", metavar="TEXT", nargs="*", help="texts to mask, with --tokenizer")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="prepared folder to take rows from")
    parser.add_argument("--tokenizer", type=Path, metavar="PATH", help="tokenizer.json or a folder with one")
    parser.add_argument("--show", type=int, default=3, metavar="N", help="rows to show (default: 3)")
    parser.add_argument("--sample", type=int, default=2000, metavar="N", help="rows to measure (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the masks (default: 0)")
    parser.add_argument("--epoch", type=int, default=0, metavar="N", help="epoch of the masks (default: 0)")
    parser.add_argument("--steps", type=int, metavar="N", help="steps of the run; the last one has --final-rate")
    parser.add_argument("--step", type=int, metavar="N", help="step to show, with --final-rate (default: 0)")
    add_json(parser)
    add_flags(parser, MaskConfig)
    return _inspect_masks


def _inspect_masks(arguments: argparse.Namespace) -> None:
    config = from_flags(MaskConfig, arguments)
    _check_steps(arguments, config)
    _check_source(arguments)

    from bertkit.report.inspect_masks import inspect_rows, rows_from_shards, rows_from_texts
    from bertkit.terminal import progress_bar

    if arguments.data is not None:
        source = rows_from_shards(arguments.data, arguments.sample)
    else:
        source = rows_from_texts(arguments.tokenizer, arguments.text)
    found = inspect_rows(
        source,
        config,
        seed=arguments.seed,
        epoch=arguments.epoch,
        show=arguments.show,
        step=arguments.step or 0,
        total_steps=arguments.steps or 0,
        progress=progress_bar("measuring the masks") if arguments.data is not None else None,
    )
    answer(arguments.json, found.facts(), found.print)


def _check_steps(arguments: argparse.Namespace, config: MaskConfig) -> None:
    step, total_steps = arguments.step or 0, arguments.steps or 0
    if config.final_rate is None and not (arguments.step is arguments.steps is None):
        raise ValueError("--step and --steps need --final-rate; without it the rate is the same at every step")
    if config.final_rate is not None and total_steps < 1:
        raise ValueError("--final-rate is the rate at the last step: say with --steps how many there are, at least 1")
    if not 0 <= step <= total_steps:
        raise ValueError(f"--step must be between 0 and --steps {total_steps}, got {step}")
    for name, least in (("show", 0), ("sample", 1), ("epoch", 0)):
        if getattr(arguments, name) < least:
            raise ValueError(f"--{name} must be at least {least}, got {getattr(arguments, name)}")


def _check_source(arguments: argparse.Namespace) -> None:
    """Rows come from a prepared folder, or from texts and a tokenizer."""
    if arguments.data is not None:
        if arguments.text or arguments.tokenizer:
            raise ValueError("--data already has rows and a tokenizer; give either --data, or --tokenizer and texts")
        if not (arguments.data / "manifest.json").is_file():
            raise ValueError(
                f"--data {arguments.data} is not a folder of prepared data (it has no manifest.json); "
                f"'bertkit prepare' makes one, or finishes it"
            )
    elif not (arguments.tokenizer and arguments.text):
        raise ValueError("inspect-masks needs --data FOLDER, or --tokenizer PATH and texts")
    else:
        find_tokenizer(arguments.tokenizer)
        if not all(text.strip() for text in arguments.text):
            raise ValueError("a text to mask is empty")
