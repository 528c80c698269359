"""The verb demo: the main job end to end."""

import argparse
from pathlib import Path


def demo(parser: argparse.ArgumentParser):
    parser.epilog = "Run again, it resumes; remove the folder to start over."
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="minutes for all stages together (default: 4, or what the resumed demo had)",
    )
    parser.add_argument("--dir", type=Path, default=Path("runs/demo"), help="folder to work in (default: runs/demo)")
    parser.add_argument(
        "--sentence", metavar="CODE", help="line of Python to tag at the end (default: asks for one on a terminal)"
    )

    def run(arguments: argparse.Namespace) -> int:
        if arguments.minutes is not None and not 0 < arguments.minutes < 100_000:
            raise ValueError(f"--minutes must lie between 0 and 100,000, got {arguments.minutes}")
        from bertkit.demo.folder import agreed_minutes

        minutes = agreed_minutes(arguments.dir, arguments.minutes)
        from bertkit.demo.stages import demo

        return demo(arguments.dir, minutes, arguments.sentence)

    return run
