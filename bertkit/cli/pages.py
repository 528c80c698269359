"""The verbs `report` and `attention`: each writes a page, by default next to what it shows."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from bertkit.cli.models import MODEL

Run = Callable[[Namespace], int | None]


def report(parser: ArgumentParser) -> Run:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run; several are overlaid")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="page to write (default: report.html in the folder of the run, or in the one that holds all the runs)",
    )
    return _report


def attention(parser: ArgumentParser) -> Run:
    parser.add_argument("text", metavar="TEXT", help="what the model reads")
    parser.add_argument("--model", required=True, metavar="DIR", help=MODEL)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="page to write (default: attention.html in the folder of --model, or here if that is downloaded)",
    )
    return _attention


def _report(arguments: Namespace) -> None:
    from bertkit.report.page import check_page
    from bertkit.report.training_report import write_report

    check_page(arguments.out)
    print(write_report(arguments.runs, arguments.out))


def _attention(arguments: Namespace) -> None:
    from bertkit.hf.folder import check_named, is_remote

    check_named(arguments.model)
    folder = Path() if is_remote(arguments.model) else Path(arguments.model)
    out = arguments.out or folder / "attention.html"

    from bertkit.report.attention_page import write_attention_page
    from bertkit.report.page import check_page

    check_page(out)
    print(write_attention_page(arguments.model, arguments.text, out))
