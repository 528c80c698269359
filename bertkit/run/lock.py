"""One process at a time owns a run folder, or writes a new one; a killed one owns nothing."""

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
    descriptor = _open(path)
    try:
        _take(descriptor, path, path.parent, wait)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Keep a second command from writing the same new folder meanwhile: it raises a BlockingIOError that names the
    first. The lock is next to the folder, which must be empty, and goes at the end. Where none can be made, and on a
    disk without locks, nobody is kept out."""
    folder = folder.absolute()
    path = folder.with_name(f".{folder.name}.lock")
    try:
        descriptor = _open(path)
    except OSError:
        yield
        return
    try:
        with contextlib.suppress(ValueError):
            _take(descriptor, path, folder, wait=False)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)  # it will be emptied


def _take(descriptor: int, path: Path, folder: Path, wait: bool) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise ValueError(
                f"{path} cannot be locked ({error.strerror}); choose a folder on a disk that supports locks"
            ) from None
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
        raise BlockingIOError(f"{folder} is in use by {holder}; wait for it, or choose another folder") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, _myself().encode(), 0)


def _myself() -> str:
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {json.dumps(socket.gethostname())} since {started}\n"
