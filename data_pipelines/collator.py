"""Token rows enter, a masked batch leaves: padded for any project, or packed for an encoder without padding."""

import os
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np

from data_pipelines.batch import PackedBatch, RowBatch
from data_pipelines.config import MaskConfig
from data_pipelines.keyed import fold
from data_pipelines.masking import Masked, mask_tokens
from data_pipelines.vocabulary import vocabulary_from_ids, vocabulary_of
from data_pipelines.words import WordTable, starts_from_word_ids, word_table

IGNORED = -100
"""The label of a token that is no target, as torch's cross-entropy and transformers have it."""

Rate = float | Callable[[int], float]


class LinearRate:
    """A mask rate that goes in a straight line from `first` at step 0 to `last` at step `steps`."""

    def __init__(self, first: float, last: float, steps: int):
        self.first, self.last, self.steps = first, last, steps

    def __call__(self, step: int) -> float:
        return self.first + (self.last - self.first) * min(step / max(self.steps, 1), 1.0)


class MaskingCollator:
    """Choose 15% of the maskable tokens and corrupt them 80/10/10: [MASK], a random token, the token itself.

    Works as `collate_fn` of a DataLoader and as `data_collator` of a transformers `Trainer`; the first seven
    arguments mean what they mean in its `DataCollatorForLanguageModeling`. Special tokens are never chosen and never
    drawn; the rate counts the other tokens only. A row with anything to choose has at least one target.

    An example is a sequence of ids (list, array, tensor) or a mapping with `input_ids` and, as you have them:
    `special_tokens_mask` (1: never choose), `attention_mask`, `word_ids` (exact words for unit "word"), `step` (for a
    rate that depends on it), and `row_id` with `epoch`. With `row_id` the masks are a pure function of (seed, epoch,
    row_id, position): the same with any number of workers, ranks and batches. Without, they come from a stream of
    their own per process and worker. Further fields are stacked, or padded with 0 where they run along the tokens.

    Without a tokenizer give `mask_id`, `vocab_size`, `special_ids` and `pad_id`. `layout="packed"` returns a
    `PackedBatch`. `return_tensors="np"` never imports torch.
    """

    def __init__(
        self,
        tokenizer: Any = None,
        mlm_probability: Rate = MaskConfig.rate,
        mask_replace_prob: float = MaskConfig.mask_share,
        random_replace_prob: float = MaskConfig.random_share,
        pad_to_multiple_of: int | None = None,
        return_tensors: Literal["pt", "np"] = "pt",
        seed: int | None = None,
        *,
        unit: Literal["token", "word", "span"] = MaskConfig.unit,
        count: Literal["bernoulli", "exact"] = MaskConfig.count,
        span_mean: float = MaskConfig.span_mean,
        span_max: int = MaskConfig.span_max,
        layout: Literal["padded", "packed"] = "padded",
        mask_id: int | None = None,
        vocab_size: int | None = None,
        special_ids: Sequence[int] = (),
        pad_id: int | None = None,
    ):
        for name, value, known in (
            ("return_tensors", return_tensors, ("pt", "np")),
            ("layout", layout, ("padded", "packed")),
            ("unit", unit, ("token", "word", "span")),
            ("count", count, ("bernoulli", "exact")),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if tokenizer is not None:
            self.vocabulary = vocabulary_of(tokenizer)
        elif mask_id is None or vocab_size is None:
            raise ValueError("give a tokenizer, or at least mask_id and vocab_size (and special_ids, pad_id)")
        else:
            self.vocabulary = vocabulary_from_ids(mask_id, vocab_size, special_ids, pad_id)
        self.rate = mlm_probability
        self.config = MaskConfig(
            rate=MaskConfig.rate if callable(mlm_probability) else mlm_probability,
            mask_share=mask_replace_prob,
            random_share=random_replace_prob,
            unit=unit,
            count=count,
            span_mean=span_mean,
            span_max=span_max,
        )
        self.pad_to_multiple_of, self.return_tensors, self.layout = pad_to_multiple_of, return_tensors, layout
        self.seed = int.from_bytes(os.urandom(8), "big") if seed is None else seed
        self._rows_drawn = 0
        self._words: WordTable | None = None

    @classmethod
    def from_config(
        cls, tokenizer: Any, config: MaskConfig, *, seed: int, total_steps: int = 0, **options
    ) -> "MaskingCollator":
        """The collator a recipe describes; `total_steps` is where a changing rate arrives."""
        final = config.final_rate
        return cls(
            tokenizer,
            config.rate if final is None else LinearRate(config.rate, final, total_steps),
            config.mask_share,
            config.random_share,
            seed=seed,
            unit=config.unit,
            count=config.count,
            span_mean=config.span_mean,
            span_max=config.span_max,
            **options,
        )

    def __call__(self, examples: Sequence[Any]) -> dict[str, Any] | PackedBatch:
        """Collate one batch of examples."""
        if not len(examples):
            raise ValueError("an empty batch was given to the masking collator")
        columns = _columns(examples)
        if "input_ids" not in columns:
            raise ValueError(f"an example needs input_ids, got {', '.join(columns)}")
        lengths = np.fromiter(map(len, columns["input_ids"]), np.int64, len(examples))
        row_starts = np.concatenate([[0], np.cumsum(lengths)])
        rows = RowBatch(
            ids_T=_flatten(columns.pop("input_ids"), lengths),
            row_starts=row_starts,
            sequence_starts=row_starts,
            starts_word_T=_flat_word_starts(columns.pop("word_ids", None), lengths),
        )
        protected_T, attended_T = (
            _flatten(columns.pop(name), lengths).astype(bool) if name in columns else None
            for name in ("special_tokens_mask", "attention_mask")
        )
        if attended_T is not None:
            unattended_T = ~attended_T
            protected_T = unattended_T if protected_T is None else protected_T | unattended_T
        row_keys = self._row_keys(columns.pop("row_id", None), columns.pop("epoch", None), len(examples))
        steps = columns.pop("step", None)
        masked, starts_word_T = self._mask(rows, row_keys, None if steps is None else int(steps[0]), protected_T)
        if self.layout == "packed":
            return self._packed(rows, masked, starts_word_T)
        return self._padded(rows, masked, attended_T, columns)

    def collate_rows(self, rows: RowBatch, row_ids: np.ndarray, epochs: np.ndarray, step: int) -> PackedBatch:
        """Collate rows that lie end to end already, as the shards hand them out."""
        masked, starts_word_T = self._mask(rows, fold(self.seed, epochs, row_ids), step, None)
        return self._packed(rows, masked, starts_word_T)

    def _mask(self, rows: RowBatch, row_keys, step: int | None, protected_T) -> tuple[Masked, np.ndarray | None]:
        ids_T = rows.ids_T
        # Seen as unsigned, a negative id is larger than any vocabulary.
        if len(ids_T) and ids_T.view(np.uint64).max() >= len(self.vocabulary.masking.special_V):
            raise ValueError(
                f"a token id lies outside the vocabulary of {len(self.vocabulary.masking.special_V)}: "
                f"the ids run from {ids_T.min()} to {ids_T.max()}"
            )
        starts_word_T = rows.starts_word_T
        if starts_word_T is None and (self.config.unit == "word" or self.layout == "packed"):
            starts_word_T = self._word_starts(ids_T)
        masked = mask_tokens(
            ids_T,
            rows.row_starts,
            row_keys,
            self.vocabulary.masking,
            self.config,
            rate=self._rate(step),
            protected_T=protected_T,
            starts_word_T=starts_word_T,
        )
        return masked, starts_word_T

    def _rate(self, step: int | None) -> float:
        if not callable(self.rate):
            return self.rate
        if step is None:
            raise ValueError("the mask rate depends on the step: give every example its `step`")
        return self.rate(step)

    def _word_starts(self, ids_T: np.ndarray) -> np.ndarray | None:
        if self._words is None and self.vocabulary.tokens is not None:
            try:
                self._words = word_table(self.vocabulary.tokens, len(self.vocabulary.masking.special_V))
            except ValueError:
                if self.config.unit == "word":
                    raise
        if self._words is None:
            if self.config.unit == "word":
                raise ValueError("whole words need a tokenizer, or `word_ids` in every example")
            return None
        return self._words.starts(ids_T)

    def _row_keys(self, row_ids, epochs, num_rows: int) -> np.ndarray:
        if row_ids is not None:
            seen = 0 if epochs is None else np.fromiter(epochs, np.int64, num_rows)
            return fold(self.seed, seen, np.fromiter(row_ids, np.int64, num_rows))
        first, self._rows_drawn = self._rows_drawn, self._rows_drawn + num_rows
        return fold(self.seed, *_process_identity(), np.arange(first, first + num_rows))

    def _padded(self, rows: RowBatch, masked: Masked, attended_T, columns: dict[str, list]) -> dict[str, Any]:
        lengths = rows.row_starts[1:] - rows.row_starts[:-1]
        width = int(lengths.max())
        if self.pad_to_multiple_of:
            width = -(-width // self.pad_to_multiple_of) * self.pad_to_multiple_of
        places = np.arange(width)
        if self.vocabulary.pads_left:
            filled = places >= (width - lengths)[:, None]
        else:
            filled = places < lengths[:, None]

        def spread(flat_T: np.ndarray, padding: int) -> np.ndarray:
            if flat_T.size == filled.size:
                return flat_T.reshape(filled.shape)
            spread_out = np.full(filled.shape, padding, flat_T.dtype)
            spread_out[filled] = flat_T
            return spread_out

        labels_T = np.full(len(masked.input_ids), IGNORED, np.int64)
        labels_T[masked.target_index] = masked.target_ids
        batch = {
            "input_ids": spread(masked.input_ids, self.vocabulary.pad_id),
            "attention_mask": filled.astype(np.int64) if attended_T is None else spread(attended_T.astype(np.int64), 0),
            "labels": spread(labels_T, IGNORED),
        }
        for name, values in columns.items():
            if name == "labels":
                continue  # of an earlier task: the targets are the labels here
            if _runs_along(values, lengths):
                batch[name] = spread(_flatten(values, lengths), 0)
            else:
                batch[name] = values if isinstance(values[0], (str, bytes)) else np.asarray(values)
        return self._finish(batch)

    def _packed(self, rows: RowBatch, masked: Masked, starts_word_T) -> PackedBatch:
        starts = rows.sequence_starts
        lengths = starts[1:] - starts[:-1]
        index = masked.target_index
        arrays = {
            "input_ids": masked.input_ids,
            "position_ids": np.arange(len(masked.input_ids)) - np.repeat(starts[:-1], lengths),
            "cu_seqlens": starts.astype(np.int32),
            "target_index": index,
            "target_ids": masked.target_ids,
            "target_kind": masked.target_kind,
            "target_starts_word": np.ones(len(index), bool) if starts_word_T is None else starts_word_T[index],
        }
        return PackedBatch(max_seqlen=int(lengths.max(initial=0)), **self._finish(arrays))

    def _finish(self, arrays: dict[str, Any]) -> dict[str, Any]:
        if self.return_tensors == "np":
            return arrays
        import torch

        return {
            name: torch.from_numpy(array) if isinstance(array, np.ndarray) and array.dtype != object else array
            for name, array in arrays.items()
        }


def _columns(examples: Sequence[Any]) -> dict[str, list]:
    """Examples as named columns; a bare sequence of ids is an example too."""
    first = examples[0]
    if not hasattr(first, "keys"):  # transformers' BatchEncoding has keys without being a Mapping
        return {"input_ids": list(examples)}
    try:
        return {name: [example[name] for example in examples] for name in first.keys()}  # noqa: SIM118
    except KeyError as missing:
        raise ValueError(f"the examples of a batch differ: one has no {missing}") from None


def _flatten(rows: list, lengths: np.ndarray) -> np.ndarray:
    """One int64 array from rows of lists, arrays or tensors."""
    if isinstance(rows[0], np.ndarray):
        flat = np.concatenate(rows).astype(np.int64, copy=False)
    elif hasattr(rows[0], "numpy"):
        flat = np.concatenate([row.numpy() for row in rows]).astype(np.int64, copy=False)
    else:
        flat = np.fromiter(chain.from_iterable(rows), np.int64)
    if flat.ndim != 1 or len(flat) != lengths.sum():
        raise ValueError("every per-token field must be one-dimensional and as long as its input_ids")
    return flat


def _flat_word_starts(word_ids: list | None, lengths: np.ndarray) -> np.ndarray | None:
    if word_ids is None:
        return None
    starts_T = np.concatenate([starts_from_word_ids(row) for row in word_ids])
    if len(starts_T) != lengths.sum():
        raise ValueError("word_ids must be as long as input_ids")
    return starts_T


def _runs_along(values: list, lengths: np.ndarray) -> bool:
    """Whether a field has one number per token."""
    if isinstance(values[0], (str, bytes)) or not hasattr(values[0], "__len__"):
        return False
    return all(len(value) == length for value, length in zip(values, lengths, strict=True))


def _process_identity() -> tuple[int, int]:
    """Rank, and the DataLoader worker's seed, which torch draws anew every epoch: no two streams are alike."""
    import sys

    torch = sys.modules.get("torch")
    worker = torch.utils.data.get_worker_info() if torch is not None else None
    return int(os.environ.get("RANK", 0)), 0 if worker is None else worker.seed
