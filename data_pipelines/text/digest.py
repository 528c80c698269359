"""Hashes of texts and files, and whether the files of a folder are still what was written."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from data_pipelines import durable

_SEEN = ".verified.json"
_BLOCK = 1 << 23
"""Bytes that are hashed at once: a thread needs the interpreter, which another one may be using, between two blocks."""

_begun: dict[Path, Callable[[], dict[str, Any]]] = {}
"""By its folder, what ends a hashing in the background and gives what it found."""


def text_hash(text: str, purpose: str) -> int:
    """64 bits of a text. Two purposes give unrelated bits, so that one choice by hash does not bias another."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=purpose.encode()).digest(), "big")


def file_hash(path: Path) -> str:
    """The sha256 of a file."""
    return files_hash([path])


def files_hash(paths: Iterable[Path]) -> str:
    """The sha256 of what these files hold, one after the other by their names."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


def check_hashes(folder: Path, expected: dict[str, str]) -> None:
    """Refuse a folder in which one of these files has another sha256. A file that has the size, times and inode it had
    when its hash was last seen to be right is not read again."""
    found = _begun.pop(folder, dict)()
    seen = _read_seen(folder) | found
    identities = {name: _identity(folder / name, sha256) for name, sha256 in expected.items()}
    doubtful = [name for name, identity in identities.items() if seen.get(name) != identity]
    with ThreadPoolExecutor() as threads:
        for name, sha256 in zip(doubtful, threads.map(lambda name: file_hash(folder / name), doubtful), strict=True):
            if sha256 != expected[name]:
                raise ValueError(f"{folder / name} is damaged: its hash differs; remove {folder} and run again")
    if doubtful or found:
        _add_seen(folder, found | {name: identities[name] for name in doubtful})


def begin_hashing(folder: Path, expected: dict[str, str]) -> None:
    """Hash in the background, on one core, what `check_hashes` will ask for in this folder: that one takes what is done
    by then, and reads only the rest."""
    known, ended = _read_seen(folder), threading.Event()
    found: dict[str, Any] = {}

    def hash_each() -> None:
        for name, sha256 in expected.items():
            if ended.is_set():
                return
            with suppress(OSError, ValueError):  # which `check_hashes` will tell
                identity = _identity(folder / name, sha256)
                if known.get(name) != identity and file_hash(folder / name) == sha256:
                    found[name] = identity

    def end() -> dict[str, Any]:
        ended.set()
        thread.join()
        return found

    thread = threading.Thread(target=hash_each, daemon=True)
    thread.start()
    _begun[folder] = end


def remember_hashes(folder: Path, hashes: dict[str, str]) -> None:
    """Let `check_hashes` trust these files of a folder until they are touched: each is on the disk, and has this
    sha256."""
    _add_seen(folder, {name: _identity(folder / name, sha256) for name, sha256 in hashes.items()})


def remember_hashes_of(part: str, folder: Path) -> None:
    """Remember of a folder inside this one what that one remembers of its own files."""
    _add_seen(folder, {f"{part}/{name}": identity for name, identity in _read_seen(folder / part).items()})


def _add_seen(folder: Path, seen: dict[str, Any]) -> None:
    with suppress(OSError):  # in a folder that is read only, files are read again next time
        durable.replace_file(folder / _SEEN, durable.json_bytes(_read_seen(folder) | seen))


def _read_seen(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, TypeError):
        return dict(json.loads((folder / _SEEN).read_bytes()))
    return {}


def _identity(path: Path, sha256: str) -> list[Any]:
    if not path.is_file():
        raise ValueError(f"{path} is missing; remove {path.parent} and run again")
    status = path.stat()
    return [sha256, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
