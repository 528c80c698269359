"""Signals set a flag, which is read at the end of each step and between the batches of an evaluation."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ONE_REQUEST_SECONDS = 3.0


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within this context a signal ends the process at once, even deep inside torch, where no handler runs."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _heard()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopSignals:
    """From `catch` to `release` a signal only sets `number`; a second one ends the process at once."""

    def __init__(self) -> None:
        self.number = 0
        self._since = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def catch(self) -> None:
        if not self._before:
            self._before = {number: signal.signal(number, self._note) for number in _heard()}

    def release(self) -> None:
        """Signals mean again what they meant before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended; SIGTERM where only another rank was asked."""
        return 128 + (self.number or signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # A rank gets one request twice: from the terminal or scheduler, and from the launcher that passes it on.
        if self.number and time.monotonic() - self._since > _ONE_REQUEST_SECONDS:
            os._exit(128 + number)
        if not self.number:
            self.number, self._since = number, time.monotonic()


def _heard() -> list[signal.Signals]:
    """Where a hangup is ignored, as under nohup, it stays ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _SIGNALS if number != signal.SIGHUP or not ignored]
