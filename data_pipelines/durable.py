"""Bytes enter, and are on the disk when the call returns. A run changes its folder only through here."""

import json
import os
import shutil
from pathlib import Path
from typing import Any


def write_file(path: Path, data: bytes) -> None:
    """Write a new file and wait until it is on the disk. It never follows a link and never overwrites."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o644)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Put the new content in the place of the old, or leave the old; a reader sees one of the two, whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    write_file(temporary, data)
    os.replace(temporary, path)
    sync_folder(path.parent)


def move(source: Path, target: Path) -> None:
    """Rename, and wait until the new name is on the disk."""
    os.rename(source, target)
    sync_folder(target.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder and what it holds; a link is never followed."""
    shutil.rmtree(path)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
