"""Reads and checks the manifest of a prepared folder, without heavy imports."""

import hashlib
import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

from data_pipelines import durable
from data_pipelines.text.stores import is_url

FORMAT = 1
MANIFEST = "manifest.json"
PROGRESS = "progress.json"
SPLITS = ("train", "validation")
_SEAL = "sha256"
_KEYS = {"format", "vocab_size", "identity", "shards", "fingerprint"}
"""Of a manifest without a seal, as older versions wrote it."""
_SAFE_NAME = re.compile(r"(part-\d+-of-\d+/)?(train|validation)-\d{5}")


def read_manifest(folder: Path | str) -> dict[str, Any]:
    """The manifest of a finished folder, here or on a store; a damaged one is refused."""
    if is_url(str(folder)):
        from data_pipelines.text.transfer import read_stored

        return parse_manifest(read_stored(f"{folder}/{MANIFEST}"), folder)
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise ValueError(_why_unfinished(Path(folder)))
    return parse_manifest(path.read_bytes(), folder)


def parse_manifest(data: bytes, folder: Path | str) -> dict[str, Any]:
    path = f"{folder}/{MANIFEST}"
    try:
        manifest = json.loads(data)
        version = manifest["format"]
        if version == FORMAT:
            _check_seal(manifest)
        for entry in chain.from_iterable(manifest["shards"][split] for split in SPLITS):
            if not _SAFE_NAME.fullmatch(entry["name"]):
                raise ValueError(f"the shard name {entry['name']!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}; remove {folder} and prepare again") from None
    if version != FORMAT:
        raise ValueError(f"{path} has format {version}, this bertkit reads {FORMAT}; prepare the data again")
    return manifest


def manifest_bytes(manifest: dict[str, Any]) -> bytes:
    """What to write to the disk: the manifest with the fingerprint of its rows, and sealed with a hash of itself."""
    manifest = manifest | {"fingerprint": fingerprint_of(manifest)}
    return durable.json_bytes(manifest | {_SEAL: _hash_of_all(manifest)})


def _check_seal(manifest: dict[str, Any]) -> None:
    """Refuse a manifest that says anything else than what was written."""
    sealed = _SEAL in manifest and manifest[_SEAL] == _hash_of_all(manifest)
    if not sealed and set(manifest) != _KEYS:
        raise ValueError("its content does not fit its sha256")
    if manifest["fingerprint"] != fingerprint_of(manifest):
        raise ValueError("its content does not fit its fingerprint")


def _hash_of_all(manifest: dict[str, Any]) -> str:
    told = {key: value for key, value in manifest.items() if key != _SEAL}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def fingerprint_of(manifest: dict[str, Any]) -> str:
    """Different for any two sets of rows: what they were made with, and the hash of every file. Folder and time of the
    corpus do not count."""
    identity = manifest["identity"]
    told = [identity["tokenizer"], identity["prepare"], manifest["vocab_size"], manifest["shards"]]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _why_unfinished(folder: Path) -> str:
    if (folder / PROGRESS).is_file():
        return f"{folder} is only half prepared; run the same 'bertkit prepare' command again to finish it"
    if next(folder.glob("part-*-of-*"), None):
        return f"{folder} holds parts; merge them with 'bertkit prepare --merge {folder}'"
    return f"{folder} is not a folder of prepared data (it has no {MANIFEST}); make one with 'bertkit prepare'"
