"""Tokens a second that the loader makes from prepared shards, masks included, beside what a training step consumes."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from bertkit.bench.generated import generated_documents
from bertkit.bench.measure import Row, Told, announce, compare, interleaved
from bertkit.bench.step import Workload, our_step
from bertkit.cpu import make_ready
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import Rows, open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import Tokenizer, train_tokenizer

_STEP = Workload(layers=4, width=256, vocab_size=8192, rows=32, length=128, ragged=False)
_LOADED_AT_ONCE = 20
_Unit = Literal["token", "word", "span"]


def bench_load(against: str | None, quick: bool) -> Iterator[Told]:
    """One row for each masking unit: whole steps, from the plan to tensors, in the process that trains."""
    make_ready()
    yield f"Ours: {_STEP.rows} rows of {_STEP.length} a step from shards, with keyed masks and no worker process."
    yield "Theirs is no opponent but the consumer: our own training step, 4×256 with fused AdamW, on such a batch."
    with tempfile.TemporaryDirectory() as name:
        tokenizer, rows = prepared(Path(name), 1_000_000 if quick else 16_000_000, _STEP.length, _STEP.vocab_size)
        for unit in get_args(_Unit):
            yield _measure(tokenizer, rows, unit, quick)


def prepared(folder: Path, num_chars: int, seq_len: int, vocab_size: int) -> tuple[Tokenizer, Rows]:
    """A tokenizer and the rows that it makes of generated text."""
    text = folder / "corpus.txt"
    text.write_text("\n\n".join(generated_documents(num_chars)), encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(text)])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=vocab_size), folder / "tokenizer")
    prepare(corpus, folder / "tokenizer", PrepareConfig(seq_len=seq_len), folder / "rows")
    return tokenizer, open_rows(folder / "rows")


def _measure(tokenizer: Tokenizer, rows: Rows, unit: _Unit, quick: bool) -> Row:
    announce(f"load, unit {unit}")
    collator = MaskingCollator.from_config(tokenizer, MaskConfig(unit=unit), seed=0, layout="packed")
    batches = _endless(rows, collator)
    batch = next(batches)
    candidates = {
        "ours": lambda: [next(batches) for _ in range(_LOADED_AT_ONCE)],
        "theirs": our_step(_STEP, batch),
    }
    timings = interleaved(candidates, rounds=3 if quick else 9)
    num_tokens = len(batch.input_ids)
    fed = compare("", _LOADED_AT_ONCE * num_tokens, "", {"ours": timings["ours"]})
    consumed = num_tokens / timings["theirs"].median
    return Row(
        workload=f"load {_STEP.rows}×{_STEP.length}, unit {unit}",
        ours=fed.ours,
        theirs=consumed,
        ratio=fed.ours / consumed,
        unit="tokens/s",
        spread=fed.spread,
    )


def _endless(rows: Rows, collator: MaskingCollator) -> Iterator[PackedBatch]:
    plan = Plan(len(rows), _STEP.rows, seed=0)
    steps = load_steps(rows, plan, collator, range(10**9), micro_batch=_STEP.rows)
    return (batch for _, (batch,) in steps)
