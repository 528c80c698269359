"""Prepared rows on a store, as a run uses them: a folder of its own here, which holds as much as the order needs."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from bertkit.config.recipe import DataSection
from bertkit.run.lock import locked
from bertkit.terminal import Update
from data_pipelines.rows.shards import Rows, open_rows
from data_pipelines.rows.stored import open_stored
from data_pipelines.text.stores import is_url

_MIXED = 8
"""What is proposed for data.mix_shards."""


def prepared_folder(data: DataSection, run_dir: str, cache: Path) -> Path:
    """The folder of data.prepared: itself, or of a URL the one that keeps its shards for this run. No two runs share
    it, because each removes what it no longer needs."""
    assert data.prepared is not None
    if not is_url(data.prepared):
        return Path(data.prepared)
    name = hashlib.sha256(f"{data.prepared} {Path(run_dir).resolve()}".encode()).hexdigest()[:24]
    return cache / "stored" / name


def open_prepared(
    data: DataSection,
    run_dir: str,
    cache: Path,
    reads_all: bool,
    progress: Callable[[str], AbstractContextManager[Update]],
) -> Path:
    """`prepared_folder`, ready to be opened. Where a run `reads_all` rows before it trains, or mixes all of them, they
    are fetched now: later the ranks would wait for each other."""
    folder = prepared_folder(data, run_dir, cache)
    if data.prepared is None or not is_url(data.prepared):
        return folder
    with locked(folder.with_suffix(".lock"), wait=True):
        open_stored(data.prepared, folder, int(data.cache_gb * 1e9))
        rows = open_rows(folder, "train")
        rows.verify()
        reads_all = reads_all or not data.mix_shards
        _check_room(data, rows, reads_all)
        if reads_all:
            with progress(f"fetching rows from {data.prepared}") as update:
                for shard in range(len(rows.rows_of_shards)):
                    rows.fetch(shard)
                    done, total = (sum(rows.bytes_of_shards[:end]) for end in (shard + 1, None))
                    update(done, total, f"{done / 1e6:,.0f} MB")
    return folder


def _check_room(data: DataSection, rows: Rows, reads_all: bool) -> None:
    """Refuse an order that needs more shards at once than may be here."""
    sizes = rows.bytes_of_shards
    needed = sum(sizes) if reads_all else min((data.mix_shards + 1) * max(sizes, default=0), sum(sizes))
    if needed <= data.cache_gb * 1e9:
        return
    more = f"raise data.cache_gb={data.cache_gb:g} to {needed / 1e9:.3g}"
    if reads_all:
        raise ValueError(
            f"data.prepared={data.prepared} holds {needed / 1e9:,.3g} GB, and all of it is needed at once to mix all "
            f"rows, or to count neighbors; set data.mix_shards={_MIXED} and model.embeddings=random, or {more}"
        )
    raise ValueError(
        f"data.mix_shards={data.mix_shards} needs {needed / 1e9:,.3g} GB of the shards of {data.prepared} here at "
        f"once; lower it, or {more}"
    )
