"""The masking collator's tokens per second, beside transformers' `DataCollatorForLanguageModeling`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bertkit.bench.measure import Row, compare, interleaved
from data_pipelines.collator import MaskingCollator

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_VOCAB_SIZE = 30_522


def bench_collator(against: str | None, quick: bool) -> tuple[list[Row], list[str]]:
    """Rows of a table and notes: batches full and ragged, rows as arrays and as lists, keyed masks throughout."""
    rng = np.random.default_rng(0)
    rows = []
    for shape, num_rows in (
        ("32×128 full", 32),
        ("32×128 ragged", 32),
        ("256×128 full", 256),
        ("256×128 ragged", 256),
    ):
        lengths = rng.integers(8, 129, num_rows) if "ragged" in shape else np.full(num_rows, 128)
        drawn = [rng.integers(len(_SPECIAL), _VOCAB_SIZE, length) for length in lengths]
        for row in drawn:
            row[0], row[-1] = 2, 3
        for form in ("arrays", "lists"):
            examples = [{"input_ids": row if form == "arrays" else row.tolist()} for row in drawn]
            rows.append(_measure(f"{shape}, {form}", examples, int(lengths.sum()), against, quick))
    notes = ["Same examples, padded output, 15% at 80/10/10. Ours draws keyed masks: a function of (seed, epoch, row)."]
    if against:
        notes.append("Checked before timing: both give the same shapes, and restoring the labels gives the input ids.")
    return rows, notes


def _measure(name: str, examples: list[dict], num_tokens: int, against: str | None, quick: bool) -> Row:
    collate = MaskingCollator(mask_id=4, vocab_size=_VOCAB_SIZE, special_ids=range(len(_SPECIAL)), pad_id=0, seed=0)
    keyed = [example | {"row_id": i, "epoch": 0} for i, example in enumerate(examples)]
    candidates: dict[str, Callable[[], Any]] = {"ours": lambda: collate(keyed)}
    if against:
        theirs = _their_collator()
        # It takes fields out of the examples it is given.
        candidates["theirs"] = lambda: theirs([dict(example) for example in examples])
        _check_same_work(candidates["ours"](), candidates["theirs"](), examples)
    timings = interleaved(candidates, rounds=5 if quick else 25, repeats=4)
    return compare(f"collator {name}", num_tokens, "tokens/s", timings)


def _their_collator() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    names = _SPECIAL + [f"token{index}" for index in range(len(_SPECIAL), _VOCAB_SIZE)]
    backend = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    special = {f"{name[1:-1].lower()}_token": name for name in _SPECIAL}
    return DataCollatorForLanguageModeling(PreTrainedTokenizerFast(tokenizer_object=backend, **special))


def _check_same_work(ours: Any, theirs: Any, examples: list[dict]) -> None:
    for batch in (ours, theirs):
        labels, ids = batch["labels"].numpy(), batch["input_ids"].numpy()
        restored = np.where(labels == -100, ids, labels)
        for row, example in zip(restored, examples, strict=True):
            assert np.array_equal(row[: len(example["input_ids"])], example["input_ids"])
    assert ours["input_ids"].shape == theirs["input_ids"].shape
