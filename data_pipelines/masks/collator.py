"""The masking collator: rows of tokens to a masked batch, padded for any project or packed for our encoders."""

import operator
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from data_pipelines.bounds import Range, check_choice
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.examples import along_tokens, one_if_equal, read_examples, stacked
from data_pipelines.masks.keyed import row_keys
from data_pipelines.masks.masking import Targets, mask_tokens
from data_pipelines.masks.units import UNITS
from data_pipelines.rows.batch import RowBatch
from data_pipelines.vocab.vocabulary import Vocabulary, look_up, vocabulary_from_ids, vocabulary_of
from data_pipelines.vocab.words import WordTable, ideograph_starts, word_table

IGNORED = -100
"""The label of a token that is no target, as in torch's cross-entropy and in transformers."""

Rate = float | Callable[[int], float]
_FIELDS = {"mlm_probability": "rate", "mask_replace_prob": "mask_share", "random_replace_prob": "random_share"}
"""What a MaskConfig calls the arguments that have transformers' names."""


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
    drawn; the rate counts the other tokens only. A row with anything to choose has at least one target. `unit` names
    a row of `data_pipelines.masks.units.UNITS`.

    An example is a sequence of ids (list, array, tensor), a `tokenizers.Encoding`, or a mapping with `input_ids` and,
    as you have them: `special_tokens_mask` (1: never choose), `attention_mask`, `word_ids` or `starts_word` (true for
    the first token of each word), `step` (for a rate that depends on it), and `row_id` with `epoch`. With `row_id` the
    masks are a pure function of (seed, epoch, row_id, position): the same with any number of workers, ranks and
    batches. Without, they come from a stream of their own per process and worker, which with workers also depends on
    torch's seed. A `Trainer` drops these fields unless it has `remove_unused_columns=False`.

    Further fields are stacked, padded with 0 where they have a number per token, or stay lists. `layout="packed"`
    returns a `PackedBatch`: tokens with attention_mask 0 and further fields are dropped.

    Without a tokenizer give `mask_id`, `vocab_size`, `special_ids` and `pad_id`; beside one, `special_ids` adds to its
    own. `return_tensors="np"` never imports torch.
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
        unit: str = MaskConfig.unit,
        count: Literal["bernoulli", "exact"] = MaskConfig.count,
        span_mean: float = MaskConfig.span_mean,
        span_max: int = MaskConfig.span_max,
        layout: Literal["padded", "packed"] = "padded",
        mask_id: int | None = None,
        vocab_size: int | None = None,
        special_ids: Sequence[int] = (),
        pad_id: int | None = None,
    ):
        check_choice("return_tensors", return_tensors, ("pt", "np"))
        check_choice("layout", layout, ("padded", "packed"))
        check_choice("count", count, ("bernoulli", "exact"))
        if pad_to_multiple_of is not None:
            _check_number("pad_to_multiple_of", pad_to_multiple_of, "[1, inf)", Integral)
        if isinstance(tokenizer, (str, Path)):
            raise ValueError(_how_to_open(tokenizer))
        self.rate = mlm_probability
        self.config = _config(
            mlm_probability=MaskConfig.rate if callable(mlm_probability) else mlm_probability,
            mask_replace_prob=mask_replace_prob,
            random_replace_prob=random_replace_prob,
            span_mean=span_mean,
            span_max=span_max,
            unit=unit,
            count=count,
        )
        self.vocabulary = _vocabulary(tokenizer, mask_id, vocab_size, special_ids, pad_id)
        self.pad_to_multiple_of, self.return_tensors, self.layout = pad_to_multiple_of, return_tensors, layout
        try:
            self.seed = int.from_bytes(os.urandom(8), "big") if seed is None else operator.index(seed)
        except TypeError:
            raise ValueError(f"seed must be an integer, or None for a fresh one, got {seed!r}") from None
        self._unit = UNITS[unit]
        self._rows_drawn = 0
        self._words: WordTable | None = None
        self._ideographs_V: np.ndarray | None = None

    @classmethod
    def from_config(
        cls, tokenizer: Any, config: MaskConfig, *, seed: int, total_steps: int = 0, **options
    ) -> "MaskingCollator":
        """The collator of a recipe; `total_steps` is the step at which a changing rate reaches its end."""
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
        given = read_examples(examples, with_words=self._unit.needs_words)
        rows, keys_R = given.rows, self._row_keys(given.row_ids, given.epochs, len(examples))
        targets, starts_word_T = self._mask(rows, keys_R, given.step, given.protected_T, given.tokenizer_words)
        if self.layout == "padded":
            return self._padded(rows, targets, given.attended_T, given.columns)
        if given.attended_T is not None:
            return self._packed(*_attended_only(rows, targets, starts_word_T, given.attended_T))
        return self._packed(rows, targets, starts_word_T)

    def collate_rows(self, rows: RowBatch, row_ids: np.ndarray, epochs: np.ndarray, step: int) -> PackedBatch:
        """Collate rows laid end to end, as the shards give them; the rows themselves are not changed."""
        rows, keys_R = RowBatch(rows.ids_T.copy(), *rows[1:]), row_keys(row_ids, self.seed, one_if_equal(epochs))
        targets, starts_word_T = self._mask(rows, keys_R, step)
        return self._packed(rows, targets, starts_word_T)

    def _mask(
        self, rows: RowBatch, keys_R, step: int | None, protected_T=None, tokenizer_words: bool = False
    ) -> tuple[Targets, np.ndarray | None]:
        """Choose targets and replace them in the rows; returns the targets, and where words start if that is known."""
        ids_T, starts_word_T = rows.ids_T, rows.starts_word_T
        if tokenizer_words and self.vocabulary.tokens is not None:
            starts_word_T = starts_word_T | look_up(self._ideographs(), ids_T)
        elif starts_word_T is None and (self._unit.needs_words or self.layout == "packed"):
            starts_word_T = self._word_starts(ids_T)
        targets = mask_tokens(
            ids_T,
            rows.row_starts,
            keys_R,
            self.vocabulary,
            self.config,
            rate=self._rate(step),
            protected_T=protected_T,
            starts_word_T=starts_word_T,
        )
        ids_T[targets.index] = targets.new_ids
        return targets, starts_word_T

    def _rate(self, step: int | None) -> float:
        if not callable(self.rate):
            return self.rate
        if step is None:
            raise ValueError("the mask rate depends on the step: give every example its `step`")
        rate = self.rate(step)
        if not isinstance(rate, Real) or not 0 < rate < 1:
            raise ValueError(
                f"mlm_probability must give a number in (0, 1) at every step; it gives {rate!r} at step {step}"
            )
        return rate

    def _word_starts(self, ids_T: np.ndarray) -> np.ndarray | None:
        if self._words is None and self.vocabulary.tokens is not None:
            try:
                self._words = word_table(self.vocabulary.tokens, len(self.vocabulary.maskable_V))
            except ValueError:
                if self._unit.needs_words:
                    raise
        if self._words is None:
            if self._unit.needs_words:
                raise ValueError("whole words need a tokenizer, or `word_ids` or `starts_word` in every example")
            return None
        return self._words.starts(ids_T)

    def _ideographs(self) -> np.ndarray:
        if self._ideographs_V is None:
            assert self.vocabulary.tokens is not None
            self._ideographs_V = ideograph_starts(self.vocabulary.tokens, len(self.vocabulary.maskable_V))
        return self._ideographs_V

    def _row_keys(self, row_ids, epochs, num_rows: int) -> np.ndarray:
        if row_ids is not None:
            return row_keys(row_ids, self.seed, 0 if epochs is None else epochs)
        first, self._rows_drawn = self._rows_drawn, self._rows_drawn + num_rows
        return row_keys(np.arange(first, first + num_rows), self.seed, *_process_identity())

    def _padded(self, rows: RowBatch, targets: Targets, attended_T, columns: dict[str, list]) -> dict[str, Any]:
        lengths = rows.row_starts[1:] - rows.row_starts[:-1]
        width = int(np.maximum.reduce(lengths))
        if self.pad_to_multiple_of:
            width = -(-width // self.pad_to_multiple_of) * self.pad_to_multiple_of
        shape, num_tokens = (len(lengths), width), len(rows.ids_T)
        # None where every row is full.
        filled = None if len(lengths) * width == num_tokens else _filled(lengths, width, self.vocabulary.pads_left)

        def spread(flat_T: np.ndarray, padding: int) -> np.ndarray:
            if filled is None:
                return flat_T.reshape(shape)
            spread_out = _full(padding, shape, flat_T.dtype)
            spread_out[filled] = flat_T
            return spread_out

        if attended_T is not None:
            attention_mask = spread(attended_T.astype(np.int64), 0)
        else:
            attention_mask = _full(1, shape) if filled is None else filled.astype(np.int64)
        labels_T = _full(IGNORED, num_tokens)
        labels_T[targets.index] = targets.ids
        batch: dict[str, Any] = {
            "input_ids": spread(rows.ids_T, self.vocabulary.pad_id),
            "attention_mask": attention_mask,
            "labels": spread(labels_T, IGNORED),
        }
        for name, values in columns.items():
            if name == "labels":
                continue  # labels of another task; here the targets are the labels
            flat_T = along_tokens(values, lengths)
            batch[name] = stacked(values) if flat_T is None else spread(flat_T, 0)
        return self._finish(batch)

    def _packed(self, rows: RowBatch, targets: Targets, starts_word_T) -> PackedBatch:
        starts = rows.sequence_starts
        lengths = starts[1:] - starts[:-1]
        arrays = {
            "input_ids": rows.ids_T,
            "position_ids": np.arange(len(rows.ids_T)) - starts[:-1].repeat(lengths),
            "cu_seqlens": starts.astype(np.int32),
            "target_index": targets.index,
            "target_ids": targets.ids,
            "target_kind": targets.kind,
            "target_starts_word": (
                np.ones(len(targets.index), bool) if starts_word_T is None else starts_word_T[targets.index]
            ),
        }
        return PackedBatch(max_seqlen=int(lengths.max(initial=0)), **self._finish(arrays))

    def _finish(self, arrays: dict[str, Any]) -> dict[str, Any]:
        if self.return_tensors == "np":
            return arrays
        import torch

        return {
            name: torch.from_numpy(array) if isinstance(array, np.ndarray) else array for name, array in arrays.items()
        }


def _config(**arguments: Any) -> MaskConfig:
    """The arguments as a config; an error names the argument as the caller does."""
    for name in ("mlm_probability", "mask_replace_prob", "random_replace_prob", "span_mean"):
        _check_number(name, arguments[name])
    _check_number("span_max", arguments["span_max"], kind=Integral)
    try:
        return MaskConfig(**{_FIELDS.get(name, name): value for name, value in arguments.items()})
    except ValueError as error:
        message = str(error)
        for name, field in _FIELDS.items():
            message = re.sub(rf"\b{field}\b", name, message)
        raise ValueError(message) from None


def _vocabulary(tokenizer: Any, mask_id, vocab_size, special_ids: Sequence[int], pad_id) -> Vocabulary:
    if tokenizer is not None:
        own_ids = {"mask_id": mask_id, "vocab_size": vocab_size, "pad_id": pad_id}
        if told_twice := [key for key, given in own_ids.items() if given is not None]:
            raise ValueError(f"the tokenizer tells {', '.join(told_twice)} already; leave that out, or the tokenizer")
        return vocabulary_of(tokenizer, special_ids)
    if mask_id is None or vocab_size is None:
        raise ValueError("give a tokenizer, or at least mask_id and vocab_size (and special_ids, pad_id)")
    _check_number("vocab_size", vocab_size, "[1, inf)", Integral)
    _check_number("mask_id", mask_id, f"[0, {vocab_size})", Integral)
    _check_number("pad_id", 0 if pad_id is None else pad_id, f"[0, {vocab_size})", Integral)
    return vocabulary_from_ids(mask_id, vocab_size, special_ids, pad_id)


def _check_number(name: str, value: Any, interval: str | None = None, kind: type = Real) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {'an integer' if kind is Integral else 'a number'}, got {value!r}")
    if interval and (problem := Range(interval).problem(value)):
        raise ValueError(f"{name} {problem}")


def _how_to_open(name: str | Path) -> str:
    opened = f"tokenizer must be a tokenizer, not its name: data_pipelines.load_tokenizer({str(name)!r}) opens "
    if Path(name).exists():
        return opened + "this one"
    return opened + f"a folder or file, tokenizers.Tokenizer.from_pretrained({str(name)!r}) one of the Hugging Face hub"


def _full(value: int, shape: int | tuple[int, int], dtype: Any = np.int64) -> np.ndarray:
    """`np.full` in three quarters of its time."""
    array = np.empty(shape, dtype)
    array.fill(value)
    return array


def _filled(lengths: np.ndarray, width: int, pads_left: bool) -> np.ndarray:
    """(R, width) bool: where the padded rows hold tokens."""
    # With two bytes each, the processor compares four times as many at once.
    small = np.int16 if width < 2**15 else np.int64
    places, lengths = np.arange(width, dtype=small), lengths.astype(small)
    return places >= (width - lengths)[:, None] if pads_left else places < lengths[:, None]


def _attended_only(rows: RowBatch, targets: Targets, starts_word_T, attended_T):
    """The same without the tokens that have attention_mask 0; none of them is a target."""
    before = np.concatenate([[0], np.cumsum(attended_T)])  # attended tokens before each position
    borders = before[rows.row_starts]
    starts_word_T = None if starts_word_T is None else starts_word_T[attended_T]
    rows = RowBatch(rows.ids_T[attended_T], borders, borders)
    return rows, replace(targets, index=before[targets.index]), starts_word_T


def _process_identity() -> tuple[int, int]:
    """Rank and seed of the DataLoader worker, which torch draws anew every epoch: no two streams are alike."""
    rank, worker = int(os.environ.get("RANK", 0)), None
    torch = sys.modules.get("torch")
    if torch is not None:
        worker = torch.utils.data.get_worker_info()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank()
    return rank, 0 if worker is None else worker.seed
