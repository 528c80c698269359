"""Writes files and folders whole or not at all, and waits until they are on the disk."""

import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CREATE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


def write_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a new file, perhaps from blocks made on the way, and wait until it is on the disk. It never follows a
    link and never overwrites."""
    descriptor = os.open(path, _CREATE | os.O_EXCL, 0o644)
    with naming(path), open(descriptor, "wb") as file:
        for block in [data] if isinstance(data, bytes) else data:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def append_file(path: Path, data: bytes, *, anew: bool) -> None:
    """Add to the end of a file, or write it `anew`; call `sync` once it is complete. It never follows a link."""
    descriptor = os.open(path, _CREATE | (os.O_TRUNC if anew else os.O_APPEND), 0o644)
    with naming(path), open(descriptor, "wb") as file:
        file.write(data)


@contextmanager
def naming(path: Path, instead_of: Path | None = None) -> Iterator[None]:
    """Let errors inside name the file: the operating system reports a full disk without it. A file that is
    written under another name first, or lies in a folder that is, is named as the user knows it."""
    try:
        yield
    except OSError as error:
        if error.errno is None or isinstance(error.filename, int):
            raise
        found = path if error.filename is None else Path(os.fsdecode(error.filename))
        if instead_of is not None and found.is_relative_to(instead_of):
            found = path / found.relative_to(instead_of)
        elif error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(found)) from None


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file at once: a reader, or a kill, finds the old content or the new."""
    temporary = temporary_path(path)
    with naming(path, instead_of=temporary):
        temporary.unlink(missing_ok=True)
        write_file(temporary, data)
        os.replace(temporary, path)
    sync(path.parent)


def publish_file(path: Path, data: bytes | Iterable[bytes], scratch: Path) -> None:
    """As `replace_file`, where several processes may write the same file at the same time: each writes it under a name
    of its own in the folder `scratch` first, where a kill may leave it."""
    unfinished = scratch / f".{uuid.uuid4().hex}.tmp"
    try:
        with naming(path, instead_of=unfinished):
            write_file(unfinished, data)
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync(path.parent)


def is_unfinished(name: str) -> bool:
    """Whether `publish_file` writes files under such a name first."""
    return re.fullmatch(r"\.[0-9a-f]{32}\.tmp", name) is not None


def refuse_foreign(path: Path, beginning: bytes, what: str) -> None:
    """Refuse to put something in the place of a file that does not begin as ours do; `what` ours is. An empty one may
    be replaced, and so may a link, which nothing here follows. A folder that cannot be written is reported here as
    well, before the work."""
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    is_device = path.exists() and not path.is_file()
    effective = os.access in os.supports_effective_ids
    if not is_device and not os.access(parent, os.W_OK, effective_ids=effective):
        raise ValueError(f"{path} cannot be written, because {parent} is not writable; choose another path")
    if path.is_file() and not path.is_symlink():
        with open(path, "rb") as file:
            found = file.read(len(beginning))
        if found and found != beginning:
            raise ValueError(f"{path} is not {what} that bertkit wrote, so it is not overwritten; choose another file")


def temporary_path(path: Path) -> Path:
    """The name under which `replace_file` writes first; a kill may leave such a file."""
    return path.with_name(f".{path.name}.tmp")


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to fill. It takes the place of `folder` when the block ends without an error."""
    old = folder.with_name(f".old-{folder.name}")
    if old.is_dir() and not folder.exists():  # killed between the two moves below
        move(old, folder)
    elif old.is_dir():
        remove_folder(old)
    temporary = folder.with_name(f".tmp-{folder.name}")
    with naming(folder, instead_of=temporary), scratch_folder(temporary) as unfinished:
        yield unfinished
        sync_tree(unfinished)
        if folder.is_dir():
            move(folder, old)
        move(unfinished, folder)
    if old.is_dir():
        remove_folder(old)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """An empty folder that is removed when the block ends, unless it was moved."""
    if path.is_dir():
        remove_folder(path)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        if path.is_dir():
            remove_folder(path)


def move(source: Path, target: Path) -> None:
    """Rename, and wait until the new name is on the disk."""
    os.rename(source, target)
    sync(target.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder and what it holds; a link is never followed."""
    shutil.rmtree(path)


def sync_tree(folder: Path) -> None:
    """Wait until a folder and every file in it are on the disk."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def json_line(value: Any) -> str:
    """One line of strict JSON."""
    return json.dumps(finite(value), ensure_ascii=False, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """JSON has no word for what is not finite; null says that there is no number."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
