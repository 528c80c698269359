"""A process counts the changes that saving one checkpoint asks the operating system for; one of them fails, or is its
last."""

import contextlib
import errno
import functools
import os
import pathlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

MOMENTS = ("before", "middle", "after")
_CALLS = ("mkdir", "fsync", "rename", "replace", "unlink", "rmdir")

Note = Callable[[str, Callable[[], Any], Callable[[], Any] | None], Any]


def record_changes(step: int, log: Path) -> None:
    """Write the name of every change that saving this step makes to a file."""
    names: list[str] = []

    def note(name: str, act: Callable[[], Any], act_half: Callable[[], Any] | None = None) -> Any:
        names.append(name)
        return act()

    def finish() -> None:
        with open(log, "w") as file:
            file.write("\n".join(names))

    _watch_save(step, note, finish)


def die_in_save(step: int, index: int, moment: str) -> None:
    """Be killed before, in the middle of, or after the change of this index while this step is saved."""

    def die(act: Callable[[], Any], act_half: Callable[[], Any] | None) -> None:
        if moment == "middle":
            assert act_half is not None
            act_half()
        elif moment == "after":
            with contextlib.suppress(OSError):  # a folder that is there already
                act()
        os.kill(os.getpid(), signal.SIGKILL)

    _watch_save(step, _at(index, die), lambda: None)


def fail_in_save(step: int, index: int, number: int = errno.ENOSPC) -> None:
    """Let the change of this index fail while this step is saved, and nothing else."""

    def fail(act: Callable[[], Any], act_half: Callable[[], Any] | None) -> None:
        if act_half is not None:
            act_half()
        raise OSError(number, os.strerror(number))

    _watch_save(step, _at(index, fail), lambda: None)


def _at(index: int, happens: Callable[[Callable[[], Any], Callable[[], Any] | None], None]) -> Note:
    """Lets every change be but the one of this index, in whose place something else happens."""
    countdown = index

    def note(name: str, act: Callable[[], Any], act_half: Callable[[], Any] | None = None) -> Any:
        nonlocal countdown
        countdown -= 1
        return happens(act, act_half) if countdown == -1 else act()

    return note


def _watch_save(step: int, note: Note, finish: Callable[[], None]) -> None:
    from bertkit.run import checkpoint as module

    real = module.save_checkpoint

    def save_checkpoint(folder, checkpoint, **options):
        if checkpoint.step != step:
            return real(folder, checkpoint, **options)
        _tell_of_changes(note)
        saved = real(folder, checkpoint, **options)
        finish()
        return saved

    module.save_checkpoint = save_checkpoint


def _tell_of_changes(note: Note) -> None:
    """From here on every call that changes the disk goes through `note`."""
    from data_pipelines import durable

    for name in _CALLS:
        real = getattr(os, name)

        def call(*arguments, _name=name, _real=real, **options):
            return note(_name, functools.partial(_real, *arguments, **options), None)

        setattr(os, name, call)
        if sys.version_info < (3, 11):  # whose paths keep the functions that they found when they were imported
            setattr(pathlib._normal_accessor, name, call)
    real_open = os.open

    def os_open(path, flags, *arguments, **options):
        act = functools.partial(real_open, path, flags, *arguments, **options)
        return note("open", act, None) if flags & os.O_CREAT else act()

    os.open = os_open
    # Unbuffered: what is written is written, as far as a process that dies can tell.
    durable.open = lambda descriptor, mode: _Written(open(descriptor, mode, buffering=0), note)  # noqa: SIM115


class _Written:
    """A file whose writes are told of."""

    def __init__(self, file: BinaryIO, note: Note):
        self._file, self._note = file, note

    def write(self, data: bytes) -> int:
        return self._note(
            "write", lambda: self._file.write(data), lambda: self._file.write(data[: max(1, len(data) // 2)])
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_Written":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
