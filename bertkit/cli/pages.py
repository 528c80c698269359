"""The verbs `report` and `attention`: a run or a model enters, a page to look at leaves."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

Run = Callable[[Namespace], int | None]


def report(parser: ArgumentParser) -> Run:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run; several are overlaid")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="page to write (default: report.html in the run's folder, or here for several runs)",
    )
    return _report


def attention(parser: ArgumentParser) -> Run:
    parser.add_argument("text", help="what the model reads")
    parser.add_argument("--model", required=True, metavar="DIR", help="model folder, a run, or hf:NAME to download one")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("attention.html"),
        metavar="FILE",
        help="page to write (default: attention.html)",
    )
    return _attention


def _report(arguments: Namespace) -> None:
    from bertkit.report.training_report import write_report

    print(write_report(arguments.runs, arguments.out))


def _attention(arguments: Namespace) -> None:
    from bertkit.hf.folder import check_named

    check_named(arguments.model)

    from bertkit.report.attention_page import write_attention_page

    print(write_attention_page(arguments.model, arguments.text, arguments.out))
