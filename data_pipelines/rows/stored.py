"""Prepared rows on a store: manifest and tokenizer are copied to a folder here, shards when they are needed.

Such a folder says in origin.json where its shards come from. A shard is here once its file of tokens is.
"""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from data_pipelines import durable
from data_pipelines.rows.manifest import MANIFEST, read_manifest
from data_pipelines.text.stores import StoredFile
from data_pipelines.text.transfer import fetch_file, stored_files

ORIGIN = "origin.json"
_SHARD_FILES = ("rows", "sequences", "words", "tokens")
"""In the order in which they are fetched."""
_FETCHED_AT_ONCE = 8

Entry = dict[str, Any]
"""A shard, as the manifest names it."""


class Origin(NamedTuple):
    """Where the shards of a folder come from, and how many bytes of them it may hold."""

    url: str
    max_bytes: int


def open_stored(url: str, folder: Path, max_bytes: int) -> None:
    """Make a folder here for the rows of a URL; what it holds of other rows is removed."""
    url = url.rstrip("/")
    manifest = read_manifest(url)
    if folder.is_dir() and not _is_of(folder, manifest["fingerprint"]):
        durable.remove_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    durable.replace_file(folder / ORIGIN, durable.json_bytes(Origin(url, max_bytes)._asdict()))
    if not (folder / MANIFEST).is_file():
        for name, file in stored_files(f"{url}/tokenizer").items():
            fetch_file(file, folder / "tokenizer" / name)
        durable.replace_file(folder / MANIFEST, durable.json_bytes(manifest))


def read_origin(folder: Path) -> Origin | None:
    """Where the shards of a folder come from; None for one that holds them itself."""
    path = folder / ORIGIN
    return Origin(**json.loads(path.read_bytes())) if path.is_file() else None


def is_here(folder: Path, entry: Entry) -> bool:
    return (folder / f"{entry['name']}.tokens").is_file()


def fetch_shard(folder: Path, origin: Origin, entry: Entry) -> None:
    """Copy a shard to its folder, verified."""
    for kind in _SHARD_FILES:
        _fetch(folder, origin, entry, kind)


def fetch_counts(folder: Path, origin: Origin, entries: Iterable[Entry]) -> None:
    """Copy the counts of these shards, which are small and are needed all at once."""
    missing = [entry for entry in entries if not (folder / f"{entry['name']}.counts").is_file()]
    with ThreadPoolExecutor(_FETCHED_AT_ONCE) as threads:
        list(threads.map(lambda entry: _fetch(folder, origin, entry, "counts"), missing))


def drop_shard(folder: Path, entry: Entry) -> None:
    """Remove a shard from its folder; its counts stay."""
    for kind in reversed(_SHARD_FILES):
        (folder / f"{entry['name']}.{kind}").unlink(missing_ok=True)


def shard_bytes(entry: Entry) -> int:
    return sum(entry[kind]["size"] for kind in _SHARD_FILES)


def _fetch(folder: Path, origin: Origin, entry: Entry, kind: str) -> None:
    name = f"{entry['name']}.{kind}"
    file = StoredFile(f"{origin.url}/{name}", entry[kind]["size"], version="")
    fetch_file(file, folder / name, entry[kind]["sha256"])


def _is_of(folder: Path, fingerprint: str) -> bool:
    try:
        return read_manifest(folder)["fingerprint"] == fingerprint
    except ValueError:
        return False
