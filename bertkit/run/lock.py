"""One process at a time owns a run folder; a killed one owns nothing."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock that this file is; raise a BlockingIOError that names the holder, or wait for it.

    lockf and not flock: a flock is shared with forked loader workers, which outlive a killed parent for seconds;
    this one ends with the process that took it, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)  # it will be emptied
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise ValueError(
                    f"{path} cannot be locked ({error.strerror}); choose a folder on a disk that has locks"
                ) from None
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            raise BlockingIOError(
                f"{path.parent} is in use by {holder}; wait for it, or choose another folder"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _myself().encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _myself() -> str:
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {json.dumps(socket.gethostname())} since {started}\n"
