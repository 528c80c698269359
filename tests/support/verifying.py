"""What it costs to verify prepared rows at the start of a run: makes a gigabyte of them and starts on them.

`python tests/support/verifying.py --gigabytes 1` prints processor seconds of opening the rows, and then of the whole
command: as rows are when they were just prepared, after every file was touched, so that all of them are hashed, and
without any verification. With `--opening` it leaves out the whole commands.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bertkit.bench.generated import generated_documents
from bertkit.pretrain.data import _verify_rows
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import MANIFEST, SPLITS, manifest_bytes
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import ShardWriter, open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

ROOT = Path(__file__).parent.parent.parent
START = """
import sys
from bertkit.cli import main
if sys.argv[1] == "unverified":
    from bertkit.pretrain import data
    data._verify_rows = lambda folder: None
sys.exit(main(["pretrain", "bert-mini", *sys.argv[2:]]))
"""
CHANGES = ("train.steps=1", "train.global_batch=4", "train.micro_batch=4", "run.num_workers=0", "eval.every=0")
TIMES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--opening", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="verifying-") as place:
        rows = make_rows(Path(place), arguments.gigabytes * 1e9)
        files = [path for path in rows.iterdir() if path.is_file()]
        print(f"{sum(path.stat().st_size for path in files) / 1e9:.2f} GB in {len(files)} files", flush=True)
        print(f"opening, unverified     {opening(rows, verified=False):.4f} s")
        print(f"opening, just prepared  {opening(rows):.4f} s")
        touch(files)
        print(f"opening, touched        {opening(rows):.4f} s", flush=True)
        if arguments.opening:
            return
        taken: dict[str, list[float]] = {"unverified": [], "just prepared": [], "touched": []}
        for number in range(TIMES):
            for how, seconds in taken.items():
                if how == "touched":
                    touch(files)
                seconds.append(start(how, rows, Path(place) / f"{how} {number}"))
        base = statistics.median(taken["unverified"])
        for how, seconds in taken.items():
            median = statistics.median(seconds)
            each = ", ".join(f"{one:.2f}" for one in seconds)
            print(f"{how:<14} {median:6.2f} s ({each})  {(median / base - 1):+.1%}")


def make_rows(place: Path, size: float) -> Path:
    """Rows of generated text, whose order is another one in every shard."""
    text = place / "text.txt"
    text.write_text("\n\n".join(generated_documents(8_000_000)), encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(text)])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=16_000), place / "tokenizer")
    folder = prepare(corpus, place / "tokenizer", PrepareConfig(), place / "rows")
    source, manifest = open_rows(folder), json.loads((folder / MANIFEST).read_bytes())
    rng = np.random.default_rng(0)
    shards = manifest["shards"]["train"]
    while sum(entry["tokens"]["size"] for entry in shards) < size:
        writer = ShardWriter(folder, f"train-{len(shards):05d}", source.vocab_size)
        while writer.num_tokens < PrepareConfig().shard_tokens:
            writer.add(source.gather(rng.integers(len(source), size=4096)))
        shards.append(writer.close())
    (folder / MANIFEST).write_bytes(manifest_bytes(manifest))
    return folder


def opening(rows: Path, verified: bool = True) -> float:
    """Processor seconds of opening rows as a run does."""
    begun = time.process_time()
    for split in SPLITS:
        open_rows(rows, split)
    if verified:
        _verify_rows(rows)
    return time.process_time() - begun


def touch(files: list[Path]) -> None:
    for path in files:
        os.utime(path)


def start(how: str, rows: Path, folder: Path) -> float:
    """Processor seconds of a run of one step."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-c", START, how, f"data.prepared={rows}", f"run.dir={folder}", *CHANGES]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
