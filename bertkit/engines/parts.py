"""A job in parts, each made by its own command, on any engine; what failed or was killed is made again.

A part is complete or absent, even if it is made twice: the engine only runs commands, and whether a part is
done is asked of the part itself. Any other engine does the same with `--part K/N` in its own loop.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.engines import ENGINES

TRIES = 3
"""How often a part is tried, in all."""


class Commands(NamedTuple):
    """What an engine is to run."""

    by_part: Mapping[int, list[str]]
    """The command of each part that is not done."""
    logs: Path
    """Folder for what each command prints: `log_of`."""
    watch: Callable[[], None]
    """To be called now and then while commands run: it shows progress."""

    def log_of(self, part: int) -> Path:
        return self.logs / f"part-{part:05d}.log"


Engine = Callable[[Commands], Any]
"""Runs commands at the same time, on one machine or many, and returns when none runs any more, whatever they did. A
part's output goes to its log."""


def run_parts(
    engine: str,
    num_parts: int,
    command_of: Callable[[int], list[str]],
    find_done: Callable[[], set[int]],
    logs: Path,
    progress: Callable[[int, int], None],
    look_every: float = 0.0,
) -> None:
    """Make every part that is not done yet. `find_done` is asked for the numbers of those that are, while parts run at
    most once in `look_every` seconds; `progress` receives their number and the total."""
    run = ENGINES[engine]
    logs.mkdir(parents=True, exist_ok=True)
    done, looked = set[int](), 0.0

    def look() -> None:
        nonlocal looked
        looked = time.monotonic()
        done.update(find_done())
        progress(len(done), num_parts)

    def watch() -> None:
        if time.monotonic() - looked >= look_every:
            look()

    look()
    for _ in range(TRIES):
        missing = [part for part in range(1, num_parts + 1) if part not in done]
        if not missing:
            return
        try:
            run(Commands({part: command_of(part) for part in missing}, logs, watch))
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command keeps the parts that are done, and makes the others") from None
        look()
    missing = [part for part in range(1, num_parts + 1) if part not in done]
    if missing:
        log = Commands({}, logs, watch).log_of(missing[0])
        raise ChildProcessError(
            f"part {missing[0]} of {num_parts} failed {TRIES} times{_last_line(log)} ({len(done)} parts are done, "
            f"{len(missing)} are missing); fix the cause and run the same command again. Its log: {log}"
        )


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    told = [line.strip() for line in lines if line.strip()]
    return f": {told[-1]}" if told else ""
