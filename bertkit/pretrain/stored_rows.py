"""Prepared rows on a store, as a run uses them: its own folder here, which holds as much as the order needs."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from bertkit.config.recipe import MIXED_OF_STORES, DataSection
from bertkit.config.sections import RunConfig
from bertkit.run.checkpoint import checkpoints
from bertkit.run.folder import CHECKPOINTS
from bertkit.run.lock import locked
from bertkit.terminal import Update
from data_pipelines.masks.shard_order import ShardOrder
from data_pipelines.rows.shards import Rows, open_rows
from data_pipelines.rows.stored import open_stored
from data_pipelines.text.stores import is_url


def prepared_folder(data: DataSection, run_dir: str, cache: Path) -> Path:
    """The folder of data.prepared: itself, or of a URL the one that keeps its shards for this run. No two runs share
    it, because each removes what it no longer needs."""
    assert data.prepared is not None
    if not is_url(data.prepared):
        return Path(data.prepared)
    name = hashlib.sha256(f"{data.prepared} {Path(run_dir).resolve()}".encode()).hexdigest()[:24]
    return cache / "stored" / name


def order_of_shards(rows: Rows, data: DataSection, seed: int) -> ShardOrder | None:
    """The order in which a run takes its shards; None where it mixes all rows."""
    return ShardOrder(rows.rows_of_shards, data.mix_shards, seed) if data.mix_shards else None


def order_note(rows: Rows, data: DataSection) -> str | None:
    """What to know of rows that come from a store while they are trained on."""
    if rows.origin is None or not data.mix_shards:
        return None
    num_shards = len(rows.rows_of_shards)
    return (
        f"the {num_shards} shards of {data.prepared} are fetched while training, and rows of "
        f"{min(data.mix_shards, num_shards)} at a time are mixed; data.mix_shards=0 mixes all, and fetches all first"
    )


def open_prepared(
    data: DataSection, run: RunConfig, cache: Path, progress: Callable[[str], AbstractContextManager[Update]]
) -> Path:
    """`prepared_folder`, ready to be opened. Of a store every shard is fetched now where all rows are mixed, else the
    one that a new run begins with: later the ranks would wait for each other."""
    folder = prepared_folder(data, run.dir, cache)
    if data.prepared is None or not is_url(data.prepared):
        return folder
    with locked(folder.with_suffix(".lock"), wait=True):
        open_stored(data.prepared, folder, int(data.cache_gb * 1e9))
        rows = open_rows(folder, "train")
        rows.verify()
        _check_room(data, rows.bytes_of_shards)
        order = order_of_shards(rows, data, run.seed)
        shards = list(range(len(rows.rows_of_shards)))
        if order is not None:
            resumes = bool(checkpoints(Path(run.dir) / CHECKPOINTS))
            shards = [] if resumes else [order.spans(0)[0].shard]
        missing = [shard for shard in shards if not rows.is_here(shard)]
        if missing:
            with progress(f"fetching rows from {data.prepared}") as update:
                _fetch(rows, missing, update)
    return folder


def _fetch(rows: Rows, shards: list[int], update: Update) -> None:
    done, total = 0, sum(rows.bytes_of_shards[shard] for shard in shards)
    for shard in shards:
        update(done, total, f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB")
        rows.fetch(shard)
        done += rows.bytes_of_shards[shard]
    update(done, total, f"{done / 1e6:,.0f} MB")


def _check_room(data: DataSection, sizes: list[int]) -> None:
    """Refuse an order that needs more shards at once than may be here."""
    needed = sum(sizes)
    if data.mix_shards:
        needed = min((data.mix_shards + 1) * max(sizes, default=0), needed)
    if needed > data.cache_gb * 1e9:
        lower = "lower it" if data.mix_shards else f"set data.mix_shards={MIXED_OF_STORES}"
        raise ValueError(
            f"data.mix_shards={data.mix_shards} needs {needed / 1e9:,.3g} GB of the shards of {data.prepared} here at "
            f"once; {lower}, or raise data.cache_gb={data.cache_gb:g} to {needed / 1e9:.3g}"
        )
