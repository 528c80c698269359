"""What a test may ask of the machine it runs on, however busy that is: processor time, a port, what still runs, a
root that obeys."""

import ctypes
import os
import socket
import time
from itertools import count
from pathlib import Path

_PORTS = count(10_000 + os.getpid() * 37 % 20_000)


def cpu_seconds() -> float:
    """Processor time of this process and of those it has waited for: no other process makes it longer."""
    return sum(os.times()[:4])


def stretch(seconds: float = 0.2) -> float:
    """How many times longer than its processor time a computation takes, since others use the machine as well."""
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() - used < seconds:
        pass
    return max(1.0, (time.monotonic() - begun) / seconds)


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


MARK = "BERTKIT_TEST"
"""Environment variable of processes that a test starts, by which it finds what they started."""


def marked(mark: str) -> list[str]:
    """Processes that were started with this mark in their environment. One that ended has no environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
    return found


def obey_permissions() -> None:
    """To root every folder is writable, by two capabilities that it can do without."""
    if os.geteuid() != 0:
        return
    libc, version_3 = ctypes.CDLL(None, use_errno=True), 0x20080522
    header, sets = (ctypes.c_uint32 * 2)(version_3, 0), (ctypes.c_uint32 * 6)()
    override, read_search = 1 << 1, 1 << 2
    libc.capget(header, sets)
    sets[0] &= ~(override | read_search)
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
