"""Measures how long steps wait for rows that lie on a store: `make store-stall`.

The store is the S3 server of the tests, which gives so many MB/s. Steps read their rows and then take as long as
machines would that use so many MB/s of rows. Of 24 shards 8 are mixed at a time, as by default, and 12 are kept here,
so most are fetched in every epoch.
"""

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from s3_server import S3Server, s3_server

from bertkit.bench.generated import generated_documents
from bertkit.config.recipe import MIXED_OF_STORES
from data_pipelines.masks.ahead import ShardsAhead
from data_pipelines.masks.plan import Plan
from data_pipelines.masks.shard_order import ShardOrder
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import MANIFEST, manifest_bytes, read_manifest
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.publish import publish
from data_pipelines.rows.shards import FILES, Rows, open_rows
from data_pipelines.rows.stored import open_stored, shard_bytes
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

URL = "s3://bucket/rows"
SHARDS, MIXED, KEPT, ROWS_OF_STEP = 24, MIXED_OF_STORES, 12, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=float, default=20.0, help="MB/s that the store gives")
    parser.add_argument("--use", type=float, nargs="+", default=[6.0, 12.0], help="MB/s that the steps use")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each is measured")
    parser.add_argument("--chars", type=int, default=8_000_000, help="characters of text in a shard")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, s3_server() as server:
        os.environ.update(server.environment)
        folder = Path(name)
        max_bytes = _prepare(folder, arguments.chars)
        for use in arguments.use:
            open_stored(URL, folder / f"cache-{use:g}", max_bytes)
            _measure(open_rows(folder / f"cache-{use:g}"), server, arguments.store, use, arguments.seconds)


def _prepare(folder: Path, num_chars: int) -> int:
    """Put shards on the store, all with the same rows. Returns the bytes of those that are kept here."""
    text = folder / "text.txt"
    text.write_text("\n\n".join(generated_documents(num_chars)), encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(text)])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=8192), folder / "tokenizer")
    rows = prepare(corpus, folder / "tokenizer", PrepareConfig(seq_len=128), folder / "rows")
    manifest = {key: value for key, value in read_manifest(rows).items() if key not in ("fingerprint", "sha256")}
    (entry,) = manifest["shards"]["train"]
    manifest["shards"]["train"] = [entry | {"name": f"train-{number:05d}"} for number in range(SHARDS)]
    for copy in manifest["shards"]["train"][1:]:
        for kind in FILES:
            shutil.copy(rows / f"{entry['name']}.{kind}", rows / f"{copy['name']}.{kind}")
    (rows / MANIFEST).write_bytes(manifest_bytes(manifest))
    publish(rows, URL)
    return KEPT * shard_bytes(entry)


def _measure(rows: Rows, server: S3Server, store: float, use: float, seconds: float) -> None:
    server.bytes_per_second, before = store * 1e6, sum(map(_is_shard, server.asked))
    step_seconds = ROWS_OF_STEP / len(rows) * sum(rows.bytes_of_shards) / (use * 1e6)
    plan = Plan(len(rows), ROWS_OF_STEP, seed=0, order=ShardOrder(rows.rows_of_shards, MIXED, seed=0))
    steps, waits = range(max(2, int(seconds / step_seconds))), []
    start = due = time.perf_counter()
    with ShardsAhead(rows, plan, steps) as shards:
        for step in steps:
            begin = time.perf_counter()
            shards.wait_for(step)
            waits.append(time.perf_counter() - begin)
            rows.gather(plan.rows_of_step(step).row_ids)
            due += waits[-1] + step_seconds
            time.sleep(max(0.0, due - time.perf_counter()))
            shards.done(step)
    total, fetched = time.perf_counter() - start, sum(map(_is_shard, server.asked)) - before
    server.bytes_per_second = float("inf")
    used = len(steps) * step_seconds * use / total
    print(
        f"store {store:g} MB/s, steps {used:.1f} of {use:g} MB/s: {len(steps):,} steps in {total:.1f} s, "
        f"{fetched} fetches of {len(rows.rows_of_shards)} shards of {max(rows.bytes_of_shards) / 1e6:.1f} MB; "
        f"the first waited {waits[0]:.2f} s, the others {sum(waits[1:]) / (total - waits[0]):.2%} of the time",
        flush=True,
    )


def _is_shard(asked: str) -> bool:
    return asked.startswith("GET rows/train") and asked.endswith(".tokens")


if __name__ == "__main__":
    main()
