"""What a supervisor reads: under `--json-log` each event of a run is one JSON object on a line of standard output."""

import contextlib
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

from bertkit.terminal import DroppingStream
from data_pipelines.durable import json_line

_output: Any = None
_about: dict[str, Any] = {}


@contextlib.contextmanager
def json_log() -> Iterator[None]:
    """Write events to standard output, each at once. What anyone else writes there goes to standard error, also what
    libraries write past Python. A warning is an event, and is still shown."""
    global _output
    sys.stdout.flush()
    descriptor = os.dup(1)
    os.dup2(2, 1)
    # A name that is not UTF-8 is written as the escape that JSON has for it.
    stream = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
    _output, shown, handler = DroppingStream(stream), warnings.showwarning, _Warnings(logging.WARNING)

    def show(message: Warning | str, *where: Any, **options: Any) -> None:
        event("warning", text=str(message))
        shown(message, *where, **options)

    warnings.showwarning = show
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        logging.getLogger().removeHandler(handler)
        warnings.showwarning = shown
        _output = None
        sys.stderr.flush()
        os.dup2(descriptor, 1)
        with contextlib.suppress(OSError):
            stream.close()


def event(name: str, /, **facts: Any) -> None:
    """Tell the supervisor, where there is one."""
    if _output is not None:
        known = {"event": name, "time": round(time.time(), 3), "rank": int(os.environ.get("RANK", "0"))}
        print(json_line({**known, **_about, **facts}), end="", file=_output, flush=True)


@contextlib.contextmanager
def events_about(**facts: Any) -> Iterator[None]:
    """Within this context every event has these facts too."""
    global _about
    before, _about = _about, {**_about, **facts}
    try:
        yield
    finally:
        _about = before


class _Warnings(logging.Handler):
    """Makes events of what loggers warn of, and shows it as Python does where no handler is set up."""

    def emit(self, record: logging.LogRecord) -> None:
        event("warning", text=record.getMessage())
        if logging.lastResort is not None and logging.getLogger().handlers == [self]:
            logging.lastResort.handle(record)
