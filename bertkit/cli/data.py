"""The verb `tokenizer`, and how any tokenizer is examined."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.cli.answers import add_json, answer
from bertkit.config.fields import add_flags, from_flags
from bertkit.engines.flags import add_part_flags, asks_for_engine, make_parts
from bertkit.run.lock import one_writer
from bertkit.terminal import printable
from data_pipelines import durable
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import corpus_bytes, find_sources, read_documents
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer_file import find_tokenizer

if TYPE_CHECKING:
    from data_pipelines.vocab.doctor import Diagnosis
    from data_pipelines.vocab.tokenizer import Tokenizer

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def tokenizer(parser: argparse.ArgumentParser):
    examples = (
        "examples:\n"
        "  bertkit tokenizer train --corpus books/*.txt --vocab-size 16000 --out my-tokenizer\n"
        "  bertkit tokenizer train ... --out my-tokenizer --engine slurm --parts 64   (words counted on a cluster)\n"
        "  bertkit tokenizer doctor --tokenizer my-tokenizer --corpus other.txt"
    )
    parser.epilog = examples
    actions = parser.add_subparsers(dest="action", required=True, metavar="train|doctor")

    def add_action(name: str, summary: str) -> argparse.ArgumentParser:
        description = f"{summary[0].upper()}{summary[1:]}."
        return actions.add_parser(name, help=summary, description=description, epilog=examples)

    train = add_action("train", "train a tokenizer on a corpus and examine it")
    train.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="folder to write; AutoTokenizer opens it too"
    )
    add_part_flags(train, "count the words of", merge=None)
    train.add_argument("--held-out", nargs="+", metavar="CORPUS", help="text to examine the tokenizer on")
    add_json(train)
    add_flags(train, CorpusConfig)
    add_flags(train, TokenizerConfig)
    doctor = add_action("doctor", "report how well a tokenizer fits a text")
    doctor.add_argument(
        "--tokenizer", type=Path, required=True, metavar="PATH", help="tokenizer.json or a folder with one"
    )
    add_json(doctor)
    add_flags(doctor, CorpusConfig)
    return lambda arguments: {"train": _train, "doctor": _doctor}[arguments.action](arguments)


def _train(arguments: argparse.Namespace) -> None:
    corpus, config = from_flags(CorpusConfig, arguments), from_flags(TokenizerConfig, arguments)
    find_sources(corpus)  # refuses what is not there before anything heavy is imported
    held_out = None
    if arguments.held_out:
        held_out = from_flags(CorpusConfig, arguments, corpus=arguments.held_out)
        find_sources(held_out)
    _make_tokenizer_folder(arguments.out)

    if arguments.part:
        _count_part(arguments, corpus, config)
        return
    with one_writer(arguments.out):
        trained = (_train_on_engine if asks_for_engine(arguments) else _train_here)(arguments, corpus, config)
    found = examine_corpus(trained, held_out or corpus)

    def show() -> None:
        print(f"wrote {arguments.out}: {trained.vocab_size:,} tokens")
        if held_out is None:
            print("examined on the start of the training text itself; use --held-out PATH for unseen text")
        _print_diagnosis(found)

    facts = {"folder": str(arguments.out), "vocab_size": trained.vocab_size, "held_out": held_out is not None}
    answer(arguments.json, facts | found.facts(), show)


def _train_here(arguments: argparse.Namespace, corpus: CorpusConfig, config: TokenizerConfig) -> "Tokenizer":
    from bertkit.terminal import progress_bar
    from data_pipelines.vocab.tokenizer import train_tokenizer

    with progress_bar("training the tokenizer") as update:
        tell = lambda done, total: update(done, total, f"{in_bytes(done)} read")  # noqa: E731
        return train_tokenizer(corpus, config, arguments.out, tell)


def _count_part(arguments: argparse.Namespace, corpus: CorpusConfig, config: TokenizerConfig) -> None:
    """Leave the words of one part for the process that trains."""
    from bertkit.terminal import progress_bar
    from data_pipelines.text.parts import Part
    from data_pipelines.vocab.sample import count_part, counting_folder

    part, folder = Part.parse(arguments.part), counting_folder(corpus, config, arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    with progress_bar("counting words") as update:
        tell = lambda done, total: update(done, total, f"{in_bytes(done)} read")  # noqa: E731
        count_part(corpus, config, part, tell).save(folder / f"{part.folder}.json")
    told = f"counted part {arguments.part}; once all are, the same command with --engine local --parts {part.of} trains"
    facts = {"folder": str(arguments.out), "part": arguments.part, "finished": False}
    answer(arguments.json, facts, lambda: print(told))


def _train_on_engine(arguments: argparse.Namespace, corpus: CorpusConfig, config: TokenizerConfig) -> "Tokenizer":
    """Let an engine run this verb for each part, and train on the words of all."""
    from data_pipelines.text.parts import Part
    from data_pipelines.vocab.sample import Counted, counting_folder
    from data_pipelines.vocab.tokenizer import train_on_counts

    if corpus_bytes(corpus) is None:
        raise ValueError("--engine: a dataset on the hub has no size by which to sample it; train without --engine")
    folder = counting_folder(corpus, config, arguments.out)
    paths = [folder / f"{Part(number, arguments.parts).folder}.json" for number in range(1, arguments.parts + 1)]
    make_parts(
        ["tokenizer", "train"],
        arguments,
        "counting words",
        lambda: {number for number, path in enumerate(paths, 1) if path.is_file()},
        folder / "logs",
    )
    counted = Counted()
    for path in paths:
        counted.add(Counted.load(path))
    trained = train_on_counts(corpus, config, arguments.out, counted)
    durable.remove_folder(folder)
    return trained


def _doctor(arguments: argparse.Namespace) -> None:
    corpus = from_flags(CorpusConfig, arguments)
    find_sources(corpus)
    find_tokenizer(arguments.tokenizer)

    from data_pipelines.vocab.tokenizer import load_tokenizer

    found = examine_corpus(load_tokenizer(arguments.tokenizer), corpus)
    answer(arguments.json, found.facts(), lambda: _print_diagnosis(found))


def examine_corpus(tokenizer: "Tokenizer", corpus: CorpusConfig, max_documents: int = 20_000) -> "Diagnosis":
    from itertools import islice

    from bertkit.terminal import progress_bar
    from data_pipelines.vocab.doctor import examine

    def texts() -> Iterator[str]:
        for place, document in enumerate(islice(read_documents(corpus), max_documents)):
            update(place, None, f"{place:,} documents")
            yield document.text

    with progress_bar("examining the tokenizer") as update:
        found = examine(tokenizer, texts())
    if not found.num_tokens:
        raise ValueError(f"the corpus {', '.join(corpus.corpus)} holds no text to examine the tokenizer on")
    return found


def _print_diagnosis(found: "Diagnosis") -> None:
    examples = ", ".join(f"{printable(text)} {count}×" for text, count in found.unknown_examples)
    lines = [
        (
            "examined",
            f"{found.num_documents:,} documents, {found.num_chars:,} characters, {found.num_tokens:,} tokens",
        ),
        ("unknown", f"{found.unknown_rate:.3%} of the tokens" + (f" ({examples})" if examples else "")),
        ("pieces per word", f"{found.pieces_per_word:.3f}"),
        ("bytes per token", f"{found.bytes_per_token:.2f}"),
        ("vocabulary used", f"{found.share_used:.1%} of {found.num_ordinary:,} ordinary tokens"),
        ("special tokens", "; ".join(found.complaints) or "in order"),
    ]
    for name, value in lines:
        print(f"  {name:<16} {value}")


def _make_tokenizer_folder(folder: Path) -> None:
    """Whether the folder can be written, and holds nothing else, is found out before the training."""
    own = {durable.temporary_path(folder / name).name for name in _TOKENIZER_FILES}.union(_TOKENIZER_FILES)
    if foreign := sorted(path.name for path in folder.glob("*") if path.name not in own):
        raise ValueError(f"--out {folder} holds something other than a tokenizer ({foreign[0]}); choose another folder")
    folder.mkdir(parents=True, exist_ok=True)


def in_bytes(num_bytes: int) -> str:
    """In the largest unit that gives at least 1."""
    if num_bytes < 1e6:
        return f"{max(num_bytes / 1e3, 0.1):.1f} kB"
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes < 1e9 else f"{num_bytes / 1e9:,.1f} GB"
