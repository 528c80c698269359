"""Signals set a flag, which the loop reads at the end of each step."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within this context SIGTERM and SIGINT end the process at once, even deep inside torch, where no handler runs."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopSignals:
    """Within this context SIGTERM and SIGINT only set `number`; a second signal ends the process at once."""

    def __init__(self) -> None:
        self.number = 0
        self._since = 0.0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended; SIGTERM where only another rank was asked."""
        return 128 + (self.number or signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Ctrl-C reaches a rank twice, from the terminal and from the launcher that passes it on: that is one request.
        if self.number and time.monotonic() - self._since > 1.0:
            os._exit(128 + number)
        if not self.number:
            self.number, self._since = number, time.monotonic()
