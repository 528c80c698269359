"""The verb `judge`: a model and files of minimal pairs enter, a table, a page and a file of predictions leave."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.cli.answers import add_json, answer
from bertkit.cli.models import MODEL, add_backend
from bertkit.config.fields import add_flags, from_flags
from bertkit.evaluate.config import JudgeConfig
from data_pipelines.durable import json_line, refuse_foreign, replace_file

if TYPE_CHECKING:
    from data_pipelines.rows.shards import Rows


def judge(parser: ArgumentParser) -> Callable[[Namespace], None]:
    parser.epilog = (
        "examples:\n"
        "  bertkit judge runs/mine blimp/data --page blimp.html\n"
        "  bertkit judge runs/mine mine.tsv --good correct --bad wrong --predictions predictions.jsonl\n\n"
        "A pair is a good sentence and a bad one: JSON Lines as BLiMP, SLING and ZhoBLiMP have them, TSV, CSV, or\n"
        "lines of good@@@bad. The model judges it right if the good one has the higher pseudo-log-likelihood."
    )
    parser.add_argument("model", metavar="MODEL", help=f"{MODEL}; of a run, its rows train the n-gram baseline")
    parser.add_argument("pairs", metavar="PAIRS", nargs="+", help="files of minimal pairs, folders or globs")
    parser.add_argument("--predictions", type=Path, metavar="FILE", help="JSON Lines to write, one for each pair")
    parser.add_argument("--page", type=Path, metavar="FILE", help="page to write")
    add_backend(parser)
    add_json(parser)
    add_flags(parser, JudgeConfig)
    return _judge


def _judge(arguments: Namespace) -> None:
    config = from_flags(JudgeConfig, arguments)
    from bertkit.evaluate.minimal_pairs import read_pairs
    from bertkit.hf.folder import check_named
    from bertkit.report.page import check_page

    check_named(arguments.model, graph=True)
    _check_predictions(arguments.predictions)
    check_page(arguments.page)
    pairs = read_pairs(arguments.pairs, config, config.max_pairs)

    from bertkit.evaluate.judge import judge_folder, print_judgment

    rows = _rows(arguments.model) if config.ngram else None
    judgment = judge_folder(arguments.model, pairs, config, rows, arguments.backend)
    if arguments.predictions:
        replace_file(arguments.predictions, "".join(map(json_line, judgment.predictions())).encode())
    if arguments.page:
        from bertkit.report.judge_page import write_judge_page

        write_judge_page(judgment, arguments.page)
    answer(arguments.json, judgment.facts, lambda: print_judgment(judgment.facts))


def _check_predictions(path: Path | None) -> None:
    """Refuse, before the work, a place that cannot be written."""
    if path is None:
        return
    if path.is_dir() or not path.resolve().parent.is_dir():
        what = f"{path} is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise ValueError(f"--predictions: {what}; name a file in a folder that is there")
    refuse_foreign(path, b"{", "a file of predictions")


def _rows(model: str) -> "Rows | None":
    """The rows that a run was trained on. None for any other model, or if they are gone; the reason is printed."""
    from bertkit.pretrain.data import rows_of_run
    from data_pipelines.rows.shards import open_rows

    try:
        return open_rows(rows_of_run(Path(model)), "train")
    except ValueError as error:
        print(f"no n-gram model to compare with: {error}", file=sys.stderr)
        return None
