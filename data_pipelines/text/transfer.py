"""Copies files between this disk and a store; what arrives is what was sent, or an error names its URL.

A folder on a store is complete or absent: its `last` file, which says what the others are, is written last and removed
first.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from data_pipelines import durable
from data_pipelines.text.digest import file_hash
from data_pipelines.text.stores import BUCKETS, StoredFile, ask, find_stored, open_store, url_of

HASHES = "sha256.json"
"""The last file of a folder that has no manifest of its own: the sha256 of every other one."""
_COPY_BYTES = 1 << 20
_TRIES = 3


def read_stored(url: str) -> bytes:
    """The whole content of a small file; a ValueError if there is none."""
    store, path = open_store(url)
    return ask(url, lambda: store.cat_file(path))


def is_stored(url: str) -> bool:
    store, path = open_store(url)
    store.invalidate_cache()
    return ask(url, lambda: store.isfile(path))


def stored_files(url: str) -> dict[str, StoredFile]:
    """The files of a folder by their names in it; none where nothing has been written yet."""
    store, path = open_store(url)
    store.invalidate_cache()
    if not ask(url, lambda: store.exists(path)):
        return {}
    root = url_of(store, path, url, path).rstrip("/") + "/"
    files = {file.url.removeprefix(root): file for file in find_stored(url)}
    for name in files:
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{url} holds {name!r}, which would be outside its folder on a disk; remove it")
    return files


def fetch_file(file: StoredFile, target: Path, sha256: str | None = None) -> None:
    """Copy a file from its store, whole or not at all; one that arrives with another sha256 is fetched again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(_TRIES):
        with suppress(_OtherBytes):
            durable.publish_file(target, _fetched(file, sha256), target.parent)
            return
    raise ValueError(f"{file.url} is damaged: its sha256 differs from the recorded one; write it again")


class _OtherBytes(Exception):
    """What arrived is not what was recorded."""


def _fetched(file: StoredFile, sha256: str | None) -> Iterator[bytes]:
    digest = hashlib.sha256()
    with file.open() as source:
        while block := source.read(_COPY_BYTES):
            digest.update(block)
            yield block
    if sha256 not in (None, digest.hexdigest()):
        raise _OtherBytes


def fetch_folder(url: str, cache: Path, without: tuple[str, ...]) -> Path:
    """A folder in `cache` with the files of a URL, but those that end so; verified where the URL says what they are,
    fetched anew if one of them has changed."""
    files = {name: file for name, file in stored_files(url).items() if not name.endswith(without)}
    if not files:
        raise ValueError(f"there is no file or folder {url!r}")
    versions = [[name, file.size, file.version] for name, file in files.items()]
    folder = cache / hashlib.sha256(durable.json_bytes([url, versions])).hexdigest()[:24]
    if not folder.is_dir():
        hashes = json.loads(read_stored(f"{url}/{HASHES}")) if HASHES in files else {}
        if missing := {name for name in hashes if not name.endswith(without)} - set(files):
            raise ValueError(f"{url} lacks {min(missing)}; write it again")
        with durable.replacing_folder(folder) as unfinished:
            for name, file in files.items():
                fetch_file(file, unfinished / name, hashes.get(name))
    return folder


def put_file(source: Path, url: str) -> None:
    """Copy a file to a store, and see that all of it is there."""
    _put(url, source.stat().st_size, lambda store, path: store.put_file(str(source), path))


def put_bytes(data: bytes, url: str) -> None:
    """Write a small file to a store."""
    _put(url, len(data), lambda store, path: store.pipe_file(path, data))


def _put(url: str, size: int, write: Callable[[Any, str], None]) -> None:
    store, path = open_store(url)

    def put() -> None:
        _write(url, store, path, write)
        store.invalidate_cache(store._parent(path))
        if (arrived := store.info(path)["size"]) != size:
            raise OSError(f"{arrived:,} bytes arrived of {size:,}")

    ask(url, put)


def _write(url: str, store: Any, path: str, write: Callable[[Any, str], None]) -> None:
    """Make the folder of a file first where the store has folders; a bucket is nothing to make by the way."""
    try:
        write(store, path)
    except FileNotFoundError:
        if url.partition("://")[0] in BUCKETS:
            raise
        store.makedirs(store._parent(path), exist_ok=True)
        write(store, path)


def check_writable(url: str) -> None:
    """Refuse a folder on a store that cannot be written, before any time goes into what shall be there."""
    store, path = open_store(url)
    probe = f"{path}/.writable"

    def write() -> None:
        _write(url, store, probe, lambda store, path: store.pipe_file(path, b"-"))
        store.rm_file(probe)

    ask(url, write)


def put_folder(folder: Path, url: str, names: Iterable[str], last: str) -> None:
    """Copy these files of a folder to a store, `last` when all others are there."""
    for name in [*(name for name in names if name != last), last]:
        put_file(folder / name, f"{url}/{name}")


def remove_stored(url: str, last: str) -> None:
    """Remove a folder from a store, its `last` file first."""
    store, path = open_store(url)
    for name in sorted(stored_files(url), key=lambda name: name != last):
        ask(url, partial(store.rm_file, f"{path}/{name}"))


def put_model(folder: Path, url: str) -> None:
    """Copy a folder with all its files to a store, and last the sha256 of each; one that is there already stays."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = {path.relative_to(folder).as_posix(): file_hash(path) for path in paths}
    data = durable.json_bytes(hashes)
    if is_stored(f"{url}/{HASHES}"):
        if read_stored(f"{url}/{HASHES}") == data:
            return
        remove_stored(url, last=HASHES)
    for name in hashes:
        put_file(folder / name, f"{url}/{name}")
    put_bytes(data, f"{url}/{HASHES}")
