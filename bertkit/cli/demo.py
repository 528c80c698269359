"""The verb demo."""

import argparse
from pathlib import Path


def demo(parser: argparse.ArgumentParser):
    parser.add_argument("--minutes", type=float, default=3.0, metavar="N", help="minutes of pretraining (default: 3)")
    parser.add_argument("--dir", type=Path, default=Path("runs/demo"), help="folder to work in (default: runs/demo)")

    def run(arguments: argparse.Namespace) -> int:
        if not 0 < arguments.minutes < 100_000:
            raise ValueError(f"--minutes must be greater than 0, got {arguments.minutes}")
        from bertkit.demo import demo

        return demo(arguments.dir, arguments.minutes)

    return run
