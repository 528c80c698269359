"""What a test may ask of the machine it runs on, however busy that is: processor time, and a port."""

import os
import socket
from itertools import count

_PORTS = count(10_000 + os.getpid() * 37 % 20_000)


def cpu_seconds() -> float:
    """Processor time of this process and of those it has waited for: no other process makes it longer."""
    return sum(os.times()[:4])


def free_port() -> int:
    """A port on which nobody listens. The system gives none of these to those who ask for any port, and other test
    processes begin elsewhere, so it is still free when a process that was started meanwhile takes it."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", 10_000 + port % 20_000))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise AssertionError
