"""The verb `report`: runs enter, a page to look at leaves."""

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


def _report(arguments: Namespace) -> None:
    from bertkit.report.training_report import write_report

    print(write_report(arguments.runs, arguments.out))
