"""Datasets of the Hugging Face hub: their documents, streamed; without a network an error at once."""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.readers import Piece, pieces_of_field

_ARCHIVE = re.compile(r"\.(zip|tar|tgz|tbz2?|txz|7z|rar|tar\.\w+)$", re.IGNORECASE)
SILENT_SECONDS = 10.0
"""Seconds to wait for an answer once connected."""


def read_hub(name: str, config: CorpusConfig) -> Iterator[Piece]:
    """A Hugging Face dataset, NAME[:SPLIT[:CONFIG]], streamed."""
    path, split, subset = _split_name(name)
    records = _hub_records(path, split or "train", subset)
    for number in count(1):
        try:
            record = next(records, None)
        except Exception as error:  # of a dozen kinds, its own and those of three HTTP libraries
            raise ValueError(_unreadable(path, error)) from None
        if record is None:
            return
        yield from pieces_of_field(record, config, f"hf:{name}:row {number}")


def load_hub(name: str, split: str) -> Any:
    """A complete Hugging Face dataset, NAME[:SPLIT[:CONFIG]], with its features; `split` is used where none is
    named."""
    import datasets

    datasets.disable_progress_bars()
    path, named, subset = _split_name(name)
    try:
        _check_before_loading(path)
        return datasets.load_dataset(path, subset, split=named or split)
    except Exception as error:  # as above
        raise ValueError(_unreadable(path, error)) from None


def hub_revision(name: str) -> str | None:
    """The current commit of a Hugging Face dataset, NAME[:SPLIT[:CONFIG]]; None where the library is offline."""
    from huggingface_hub import HfApi, constants

    path = _split_name(name)[0]
    if constants.HF_HUB_OFFLINE:
        return None
    try:
        _check_hub_is_reachable()
        return HfApi().dataset_info(path, timeout=30).sha
    except Exception as error:  # as above
        raise ValueError(_unreadable(path, error)) from None


def _split_name(name: str) -> tuple[str, str, str | None]:
    path, _, rest = name.partition(":")
    split, _, subset = rest.partition(":")
    return path, split, subset or None


def _hub_records(path: str, split: str, subset: str | None) -> Iterator[dict]:
    import datasets

    datasets.disable_progress_bars()
    _check_before_loading(path)
    yield from datasets.load_dataset(path, subset, split=split, streaming=True)


def _check_before_loading(path: str) -> None:
    """Refuse a folder with an archive, which the library would unpack; check the network for a name."""
    if not Path(path).exists():
        _check_hub_is_reachable()
        return
    for file in sorted(Path(path).rglob("*")):
        if _ARCHIVE.search(file.name):
            raise ValueError(f"{file} is an archive, which is not supported; unpack it first")


def end_silence() -> None:
    """Set a timeout on every request to the hub; the library sets none."""
    import huggingface_hub

    hooks = getattr(huggingface_hub.get_session(), "event_hooks", None)
    if hooks is not None and _limit not in hooks["request"]:
        hooks["request"].append(_limit)


def _limit(request: Any) -> None:
    given = request.extensions.get("timeout") or {}
    kinds = ("connect", "read", "write", "pool")
    request.extensions["timeout"] = {kind: min(given.get(kind) or SILENT_SECONDS, SILENT_SECONDS) for kind in kinds}


def _check_hub_is_reachable() -> None:
    """Fail at once without a network; the library would retry for half a minute."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    end_silence()
    # Offline, the library reads its cache. Behind a proxy, the hub cannot be reached directly.
    if constants.HF_HUB_OFFLINE or address.scheme in getproxies():
        return
    port = address.port or {"http": 80}.get(address.scheme, 443)
    socket.create_connection((address.hostname, port), timeout=5).close()


def _unreadable(path: str, error: Exception) -> str:
    return (
        f"the Hugging Face dataset {path!r} cannot be read ({type(error).__name__}: {_first_line(error)}); "
        "without a network, save it elsewhere as Parquet or JSON Lines and give that file's path"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
