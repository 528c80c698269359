"""Counts of work done enter, a bar on a terminal or a line now and then in a log leave."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[[float, float | None, str], None]
"""Called with the amount done, the amount in all (None: unknown), and a short note."""

_LOG_EVERY = 30.0


@contextmanager
def progress_bar(title: str) -> Iterator[Update]:
    """Show progress on stderr, so that stdout holds results alone."""
    start = time.monotonic()
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=None, note="")
            # An estimate that turns out too small must not end the bar early.
            yield lambda done, total, note: bar.update(
                task, completed=done, total=total and max(total, done), note=note
            )
    else:
        last = start

        def log(done: float, total: float | None, note: str) -> None:
            nonlocal last
            if time.monotonic() - last >= _LOG_EVERY:
                last = time.monotonic()
                share = f" {min(done / total, 1):.0%}" if total else ""
                print(f"{title}{share} {note}", file=sys.stderr, flush=True)

        yield log
    print(f"{title}: done in {time.monotonic() - start:.1f} s", file=sys.stderr)


def printable(text: str, lines: bool = False) -> str:
    """Control codes in somebody's text are shown, not obeyed. With `lines`, line breaks stay."""
    return "".join(char if char.isprintable() or (lines and char == "\n") else repr(char)[1:-1] for char in text)
