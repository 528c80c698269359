"""What it costs to verify prepared rows at the start of a run: makes a gigabyte of them and starts on them.

`python tests/support/verifying.py --gigabytes 1` prints processor seconds of opening the rows, and then seconds and
processor seconds of the whole command: without any verification, with rows as they are when they were just prepared,
and after every file was touched, so that all of them are hashed: while torch is imported, as a start does it, or
afterwards. It also tells how long the start waits for its verification. The ways take turns, and the quickest start of
each counts. With `--opening` it leaves out the commands.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bertkit.bench.generated import generated_documents
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import MANIFEST, SPLITS, manifest_bytes
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import ShardWriter, open_rows, verify_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

ROOT = Path(__file__).parent.parent.parent
START = """
import sys, time
from bertkit.cli import main
from data_pipelines.rows import shards
waited, verify = 0.0, shards.verify_rows
def verify_rows(folder):
    global waited
    begun = time.monotonic()
    verify(folder)
    waited += time.monotonic() - begun
shards.verify_rows = (lambda folder: None) if sys.argv[1] == "unverified" else verify_rows
if sys.argv[1] in ("unverified", "touched, hashed afterwards"):
    shards.begin_to_verify = lambda folder: None
assert main(["pretrain", "bert-mini", *sys.argv[2:]]) == 0
print(waited)
"""
CHANGES = ("train.steps=1", "train.global_batch=4", "train.micro_batch=4", "run.num_workers=0", "eval.every=0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--times", type=int, default=5)
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
        ways = ("unverified", "just prepared", "touched", "touched, hashed afterwards")
        taken: dict[str, list[tuple[float, float, float]]] = {how: [] for how in ways}
        for number in range(arguments.times):
            for how in ways:
                if how.startswith("touched"):
                    touch(files)
                taken[how].append(start(how, rows, Path(place) / f"{how} {number}"))
        base, base_cpu, _ = map(min, zip(*taken["unverified"], strict=True))
        for how, each in taken.items():
            seconds, cpu, waited = map(min, zip(*each, strict=True))
            print(
                f"{how:<27} {seconds:6.2f} s ({seconds / base - 1:+.1%}), of which it waits {waited:.2f} s "
                f"({waited / base:.1%}); {cpu:6.2f} s of CPU ({cpu / base_cpu - 1:+.1%})"
            )


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
        verify_rows(rows)
    return time.process_time() - begun


def touch(files: list[Path]) -> None:
    for path in files:
        os.utime(path)


def start(how: str, rows: Path, folder: Path) -> tuple[float, float, float]:
    """Seconds of a run of one step, its processor seconds, and for how long it waited for its verification."""
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-c", START, how, f"data.prepared={rows}", f"run.dir={folder}", *CHANGES]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - begun, cpu, float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
