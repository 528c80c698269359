"""How time and memory grow with the amount of text: not at all, except for what must be read once.

Four laws are shown. The time of a step is proportional to its tokens, where rows are short. A late step gets its batch
as fast as the first one. Preparing and training need no more memory for more text. On prepared text, a run starts as
fast on a large corpus as on a small one.
"""

import itertools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

from bertkit.bench.generated import generated_documents
from bertkit.bench.load import prepared
from bertkit.bench.measure import Row, Told, announce, apart, compare, interleaved, watched_memory
from bertkit.bench.step import Workload, make_batch, our_step
from bertkit.config.recipe import Recipe, read_recipe
from bertkit.cpu import make_ready
from bertkit.pretrain.data import open_data
from bertkit.pretrain.objectives import OBJECTIVES
from bertkit.pretrain.start_model import build_model
from bertkit.run.loop import StepRules, run_steps
from bertkit.run.optim import build_optimizers
from bertkit.run.ranks import start_accelerator, wrap
from bertkit.run.state import LoopState
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan

_SHORT_ROWS = Workload(layers=4, width=256, vocab_size=8192, rows=32, length=32, ragged=False)
_LATE = (0, 10**3, 10**6, 10**9)
_RECIPE = "bert-tiny"
_TRAINED_STEPS = 20


def bench_growth(against: str | None, quick: bool, sizes: list[float] | None = None) -> Iterator[Told]:
    """Rows for more and more tokens a step, later and later steps, and more and more megabytes of text."""
    make_ready()
    sizes = sizes or ([1, 4] if quick else [10, 100, 1000])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        announce("growth, steps of more and more tokens")
        steps = _step_rows(quick)
        yield from steps
        announce("growth, seeking later and later steps")
        seeks = _seek_rows(folder, quick)
        yield from seeks
        tokenizer_path = folder / "tokenizer"
        seen = {}
        for size in sorted(sizes):
            seen[size] = _of_size(size, folder, tokenizer_path)
            yield from _rows_of(size, seen[size])
    first, last = seen[min(seen)], seen[max(seen)]
    sizes_told = f"From {min(seen):g} to {max(seen):g} MB"
    yield from (
        f"A token costs {steps[0].ours / steps[-1].ours:.2f} times as much in a step of 16 times the tokens.",
        f"The batch of step {_LATE[-1]:,} takes {seeks[0].ours / seeks[-1].ours:.2f} times as long as that of step 0.",
        f"{sizes_told}, preparing takes {last.prepare_mb / max(first.prepare_mb, 1):.2f} and training "
        f"{last.train_mb / max(first.train_mb, 1):.2f} times the memory; starting a run takes "
        f"{last.start_seconds / first.start_seconds:.2f} times as long.",
        "Memory: the peak of a separate process, above its imports and without mapped files. Each amount of text is "
        "measured once.",
    )


def _rows_of(size: float, seen: "Seen") -> list[Row]:
    prepared, trained = size / seen.prepare_seconds, seen.tokens_per_second
    return [
        Row(workload=f"prepare {size:g} MB", ours=prepared, unit="MB/s", peak_memory_mb=seen.prepare_mb),
        Row(workload=f"start on {size:g} MB", ours=1 / seen.start_seconds, unit="starts/s"),
        Row(workload=f"train on {size:g} MB", ours=trained, unit="tokens/s", peak_memory_mb=seen.train_mb),
    ]


def _step_rows(quick: bool) -> list[Row]:
    """Steps of the same short rows, more and more of them."""
    workloads = [_SHORT_ROWS._replace(rows=_SHORT_ROWS.rows * factor) for factor in (1, 4, 16)]
    steps = {str(workload): our_step(workload, make_batch(workload).packed) for workload in workloads}
    timings = interleaved(steps, rounds=3 if quick else 9)
    return [
        compare(f"step {workload}", workload.rows * workload.length, "tokens/s", {"ours": timings[str(workload)]})
        for workload in workloads
    ]


def _seek_rows(folder: Path, quick: bool) -> list[Row]:
    """Time to the batch of one step, early and late."""
    tokenizer, rows = prepared(folder, 300_000 if quick else 4_000_000, seq_len=128, vocab_size=8192)
    collator = MaskingCollator.from_config(tokenizer, MaskConfig(), seed=0, layout="packed")
    plan = Plan(len(rows), 32, seed=0)

    def seek(step: int):
        return lambda: next(load_steps(rows, plan, collator, range(step, step + 1), micro_batch=32))

    timings = interleaved({str(step): seek(step) for step in _LATE}, rounds=5 if quick else 25)
    return [compare(f"seek step {step:,}", 1, "batches/s", {"ours": timings[str(step)]}) for step in _LATE]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one amount of text took."""

    prepare_seconds: float
    prepare_mb: float
    start_seconds: float
    tokens_per_second: float
    train_mb: float


def _of_size(megabytes: float, folder: Path, tokenizer_path: Path) -> Seen:
    """Prepare, then train, each in a separate process. The text is removed at the end."""
    announce(f"growth, preparing and training on {megabytes:g} MB")
    place = folder / f"{megabytes:g}"
    place.mkdir()
    try:
        with open(place / "corpus.txt", "w", encoding="utf-8") as file:
            _write_text(file, int(megabytes * 1e6))
        parts = [
            json.loads(apart("bertkit.bench.growth", part, str(place), str(tokenizer_path)))
            for part in ("prepare", "train")
        ]
        return Seen(**(parts[0] | parts[1]))
    finally:
        shutil.rmtree(place)


def _write_text(file: TextIO, num_chars: int) -> None:
    """So many characters of documents, no two of them alike."""
    documents = generated_documents(min(num_chars, 4_000_000))
    written = 0
    while written < num_chars:
        for number, document in enumerate(documents):
            if written >= num_chars:
                return
            written += file.write(f"{written} {number} {document}\n\n")


def _recipe(place: Path, tokenizer_path: Path) -> Recipe:
    recipe = read_recipe(_RECIPE, ["data.corpus=corpus", f"train.steps={_TRAINED_STEPS}"])
    return replace(
        recipe,
        data=replace(recipe.data, corpus=[str(place / "corpus.txt")], cache_dir=str(place / "cache")),
        tokenizer=replace(recipe.tokenizer, path=str(tokenizer_path)),
        run=replace(recipe.run, dir=str(place / "run")),
    )


def measure_prepare(recipe: Recipe) -> dict[str, float]:
    """Raw text to finished shards."""
    with watched_memory() as memory:
        start = time.perf_counter()
        open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run, loud=False)
        seconds = time.perf_counter() - start
    return {"prepare_seconds": seconds, "prepare_mb": memory.most}


def measure_train(recipe: Recipe) -> dict[str, float]:
    """A run on prepared text: to its first batch, then some steps."""
    make_ready()
    accelerator = start_accelerator(Path(recipe.run.dir), recipe.train.precision, [])
    with watched_memory() as memory:
        start = time.perf_counter()
        data = open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run, loud=False)
        objective = OBJECTIVES[recipe.train.objective](recipe, data)
        bare = build_model(recipe, data, objective)
        trainable = wrap(accelerator, bare, partial(build_optimizers, config=recipe.optim))
        plan = Plan(len(data.train), recipe.train.global_batch, recipe.run.seed)
        collator, micro_batch = objective.make_collator(_TRAINED_STEPS), recipe.train.micro_batch
        steps = load_steps(data.train, plan, collator, range(_TRAINED_STEPS), micro_batch=micro_batch)
        first = next(steps)
        start_seconds = time.perf_counter() - start
        state = LoopState()
        rules = StepRules(total_steps=_TRAINED_STEPS, seed=0, optim=recipe.optim, train=recipe.train)
        for _ in run_steps(trainable, itertools.chain([first], steps), state, rules):
            pass
        speed = state.tokens / state.seconds
    return {"start_seconds": start_seconds, "tokens_per_second": speed, "train_mb": memory.most}


if __name__ == "__main__":
    measure = {"prepare": measure_prepare, "train": measure_train}[sys.argv[1]]
    print(json.dumps(measure(_recipe(Path(sys.argv[2]), Path(sys.argv[3])))))
