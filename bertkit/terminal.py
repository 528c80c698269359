"""What people see: progress as a bar on a terminal or a line now and then in a log, and output that may get lost."""

import importlib.util
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

Update = Callable[[float, float | None, str], None]
"""Called with the amount done, the amount in all (None: unknown), and a short note."""

_LOG_EVERY = 30.0
READER_SECONDS = 5.0
"""Seconds that a reader of the output may hang before lines are dropped."""


@contextmanager
def progress_bar(title: str) -> Iterator[Update]:
    """Show progress on stderr, so that stdout holds results alone."""
    start = time.monotonic()
    if sys.stderr.isatty() and has_rich():
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
                # An estimate that turned out too small tells nothing more.
                share = f" {done / total:.0%}" if total and done <= total else ""
                print(f"{title}{share} {note}", file=sys.stderr, flush=True)

        yield log
    print(f"{title}: done in {time.monotonic() - start:.1f} s", file=sys.stderr)


def has_rich() -> bool:
    """Whether there can be colours and bars; an installation without torch may be without them too."""
    return importlib.util.find_spec("rich") is not None


class DroppingStream:
    """A stream that drops what it cannot write: the reader went away or reads no more, its disk is full, or it was
    closed."""

    def __init__(self, stream: Any):
        self._stream, self._patience = stream, READER_SECONDS

    def write(self, text: str) -> int:
        if self._is_read():
            with suppress(OSError, ValueError):
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self._is_read():
            with suppress(OSError, ValueError):
                self._stream.flush()

    def _is_read(self) -> bool:
        """A reader that hangs is waited for once; after that, lines are dropped until it reads again."""
        is_read = takes_text(self._stream, self._patience)
        self._patience = READER_SECONDS if is_read else 0.0
        return is_read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def open_closed_streams() -> None:
    """Where a standard stream was closed, the next file that is opened would take its place, and what libraries print
    would end up in that file."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    # Python has none for a stream that was closed when it started.
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def takes_text(stream: Any, seconds: float) -> bool:
    """Whether a write would not block for longer than `seconds`, as a full pipe or a stopped terminal does."""
    try:
        return bool(select.select([], [stream], [], seconds)[1])
    except (OSError, ValueError, TypeError):  # no file, or a closed one: writing to it raises
        return True


def silence_if_lost(stream: Any, awaited: bool) -> None:
    """When Python ends it flushes its streams, fails if one of them cannot be written, and waits for its reader, which
    only what is `awaited` is worth."""
    try:
        if not awaited and not takes_text(stream, READER_SECONDS):
            raise BlockingIOError
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str, lines: bool = False) -> str:
    """Make control codes in untrusted text visible instead of sending them. With `lines`, line breaks stay."""
    return "".join(char if char.isprintable() or (lines and char == "\n") else repr(char)[1:-1] for char in text)
