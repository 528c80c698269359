"""The flags with which a verb works in parts: one part by hand, or all of them on an engine."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bertkit.engines import ENGINES
from bertkit.plugins import IMPORTED
from bertkit.terminal import progress_bar
from data_pipelines.bounds import check_choice

MAX_PARTS = 99_999
_WHERE = ("engine", "parts", "part", "merge", "json")
"""Flags that say where and how a verb runs, not what it does."""


def add_part_flags(
    parser: argparse.ArgumentParser, does: str, merge: Callable[[str], Path | str] | None = Path
) -> None:
    """`does` says what happens to a part, such as "prepare"; `merge` reads the name of what holds the parts, and
    without it parts are joined by an engine alone."""
    parser.add_argument("--part", metavar="K/N", help=f"{does} only the K-th of N parts")
    if merge is not None:
        parser.add_argument("--merge", type=merge, metavar="FOLDER", help="merge the parts in FOLDER")
    about = f"engine that makes --parts N parts and merges them: {', '.join(ENGINES)}"
    parser.add_argument("--engine", metavar="NAME", help=about)
    parser.add_argument("--parts", type=int, metavar="N", help="number of parts for --engine")


def asks_for_engine(arguments: argparse.Namespace) -> bool:
    """Whether an engine is to make all parts; flags that contradict each other are refused."""
    if not arguments.engine and arguments.parts is None:
        return False
    if not arguments.engine or arguments.parts is None or arguments.part:
        raise ValueError("--engine NAME and --parts N need each other and make all parts; leave out --part")
    if not 1 <= arguments.parts <= MAX_PARTS:
        raise ValueError(f"--parts must be in [1, {MAX_PARTS}], got {arguments.parts}")
    check_choice("--engine", arguments.engine, ENGINES)
    return True


def refuse_beside_merge(arguments: argparse.Namespace) -> None:
    others = [name for name, value in vars(arguments).items() if name not in ("merge", "json") and value is not None]
    if others:
        flags = ", ".join("--" + name.replace("_", "-") for name in others)
        raise ValueError(f"--merge takes no other flag, got {flags}; settings are stored with the parts")


def make_parts(
    verb: list[str],
    arguments: argparse.Namespace,
    doing: str,
    find_done: Callable[[], set[int]],
    logs: Path,
    look_every: float = 0.0,
) -> None:
    """Let the engine run this verb for every part that is not done, with progress; see `run_parts`."""
    from bertkit.engines.parts import run_parts

    command_of = part_command(verb, arguments, IMPORTED)
    with progress_bar(f"{doing} on {arguments.engine}") as update:
        tell = lambda done, total: update(done, total, f"{done:,} of {total:,} parts")  # noqa: E731
        run_parts(arguments.engine, arguments.parts, command_of, find_done, logs, tell, look_every)


def part_command(verb: list[str], arguments: argparse.Namespace, plugins: list[str]) -> Callable[[int], list[str]]:
    """The command that makes a part, by its number: the verb with the plugins and flags that were given."""
    words = [f"--plugin={name}" for name in plugins]
    for name, value in vars(arguments).items():
        flag = name.replace("_", "-")
        if value is None or name in (*_WHERE, "action"):
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
    return lambda number: [sys.executable, "-m", "bertkit", *verb, *words, "--part", f"{number}/{arguments.parts}"]
