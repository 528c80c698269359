"""The masking collator's tokens per second, compared with transformers' `DataCollatorForLanguageModeling`."""

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from bertkit.bench.measure import Row, Told, announce, compare, interleaved
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.rows.batch import RowBatch

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_VOCAB_SIZE = 30_522
_ROWS_A_TIMING = 1024


def bench_collator(against: str | None, quick: bool) -> Iterator[Told]:
    """Batches full and ragged, rows as shards hand them out, as arrays and as lists."""
    rng = np.random.default_rng(0)
    yield "The same rows, 15% at 80/10/10; ours draws keyed masks, a function of (seed, epoch, row)."
    yield "From shards: ours gets the rows end to end, as in pretraining, and packs them; theirs gets arrays and pads."
    if against:
        yield "Checked before timing: restoring the labels gives the rows on both sides."
    for num_rows, shape in itertools.product((32, 256), ("full", "ragged")):
        lengths = rng.integers(8, 129, num_rows) if shape == "ragged" else np.full(num_rows, 128)
        drawn = [rng.integers(len(_SPECIAL), _VOCAB_SIZE, length) for length in lengths]
        for row in drawn:
            row[0], row[-1] = 2, 3
        for form in ("from shards", "arrays", "lists"):
            yield _measure(f"{num_rows}×128 {shape}, {form}", form, drawn, against, quick)


def _measure(name: str, form: str, drawn: list[np.ndarray], against: str | None, quick: bool) -> Row:
    announce(f"collator {name}")
    special = {"mask_id": 4, "pad_id": 0, "special_ids": range(len(_SPECIAL))}
    options: dict[str, Any] = {"vocab_size": _VOCAB_SIZE, "seed": 0, **special}
    examples = [{"input_ids": row.tolist() if form == "lists" else row} for row in drawn]
    flat, starts = np.concatenate(drawn), np.cumsum([0] + [len(row) for row in drawn])
    row_ids, epochs = np.arange(len(drawn)), np.zeros(len(drawn), np.int64)
    candidates: dict[str, Callable[[], Any]] = {}
    if form == "from shards":
        packing = MaskingCollator(**options, layout="packed")
        rows = RowBatch(flat, starts, starts, np.ones(len(flat), bool))
        candidates["ours"] = lambda: packing.collate_rows(rows, row_ids, epochs, step=0)
        batch = candidates["ours"]()
        restored = batch.input_ids.clone()
        restored[batch.target_index] = batch.target_ids
        assert np.array_equal(restored.numpy(), flat)
    else:
        padding = MaskingCollator(**options)
        keyed = [example | {"row_id": i, "epoch": 0} for i, example in enumerate(examples)]
        candidates["ours"] = lambda: padding(keyed)
        _check_restores(candidates["ours"](), drawn)
    if against:
        theirs = _their_collator()
        # It takes fields out of the examples it is given.
        candidates["theirs"] = lambda: theirs([dict(example) for example in examples])
        _check_restores(candidates["theirs"](), drawn)
    # Each timing covers as many rows, so that what the other side left in the caches weighs the same.
    timings = interleaved(candidates, rounds=5 if quick else 15, repeats=max(_ROWS_A_TIMING // len(drawn), 1))
    return compare(f"collator {name}", len(flat), "tokens/s", timings)


@cache
def _their_collator() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    names = _SPECIAL + [f"token{index}" for index in range(len(_SPECIAL), _VOCAB_SIZE)]
    backend = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    special = {f"{name[1:-1].lower()}_token": name for name in _SPECIAL}
    return DataCollatorForLanguageModeling(PreTrainedTokenizerFast(tokenizer_object=backend, **special))


def _check_restores(batch: Any, drawn: list[np.ndarray]) -> None:
    labels, ids = batch["labels"].numpy(), batch["input_ids"].numpy()
    for restored, row in zip(np.where(labels == -100, ids, labels), drawn, strict=True):
        assert np.array_equal(restored[: len(row)], row)
