"""The masking collator: rows of tokens to a masked batch, padded for any project or packed for our encoders."""

import os
import sys
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, overload

import numpy as np

from data_pipelines.bounds import check_choice
from data_pipelines.masks.arguments import (
    check_number,
    check_tensors,
    how_to_open,
    mask_config,
    seed_from,
    unit_from,
    vocabulary_from,
)
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.examples import one_if_equal, read_examples
from data_pipelines.masks.keyed import row_keys
from data_pipelines.masks.layouts import attended_only, packed, padded
from data_pipelines.masks.masking import Targets, mask_tokens
from data_pipelines.masks.processes import COPIES, process_identity, process_numbers
from data_pipelines.masks.units import UNITS
from data_pipelines.rows.batch import RowBatch
from data_pipelines.vocab.vocabulary import look_up
from data_pipelines.vocab.words import WordTable, ideograph_starts, word_table

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Batch = TypeVar("Batch", dict[str, Any], PackedBatch, default=dict[str, Any])
else:
    from typing import TypeVar

    Batch = TypeVar("Batch")

Rate = float | Callable[[int], float]
Tensors = Literal["pt", "np"]


class LinearRate:
    """A mask rate that goes in a straight line from `first` at step 0 to `last` at step `steps`."""

    def __init__(self, first: float, last: float, steps: int):
        self.first, self.last, self.steps = first, last, steps

    def __call__(self, step: int) -> float:
        return self.first + (self.last - self.first) * min(step / max(self.steps, 1), 1.0)


class MaskingCollator(Generic[Batch]):
    """Choose 15% of the maskable tokens and corrupt them 80/10/10: [MASK], a random token, the token itself.

    Works as `collate_fn` of a DataLoader and as `data_collator` of a transformers `Trainer`; the arguments that its
    `DataCollatorForLanguageModeling` has mean here what they mean there (`whole_word_mask=True` is `unit="word"`; give
    it and `mlm` by name). Special tokens are never chosen and never drawn; the rate counts the other tokens only. A row
    with anything to choose has at least one target, unless `at_least_one=False` or the rate is 0. `unit` names a row of
    `data_pipelines.masks.units.UNITS`.

    An example is a sequence of ids (list, array, tensor), a `tokenizers.Encoding`, or a mapping with `input_ids` and,
    as you have them: `special_tokens_mask` (1: never choose), `attention_mask`, `word_ids` or `starts_word` (true for
    the first token of each word), `step` (for a rate that depends on it), and `row_id` with `epoch`. A `Trainer` drops
    these fields unless it has `remove_unused_columns=False`. `offset_mapping` is dropped: gaps between offsets do not
    show words.

    `seed` is the key of all masks; the global generators of Python, numpy and torch are neither read nor changed, so
    `set_seed` has no effect here. Without a seed every collator draws a fresh one. With `row_id` the masks are a pure
    function of (seed, epoch, row_id, position): the same with any number of workers, ranks and batches. Without, row
    after row takes the next numbers of a stream, which begins anew with every collator. Each rank and each process that
    the collator is copied to (by fork, spawn or pickle) has its own stream, and so has every copy that such a
    process gets; in a DataLoader's workers it depends on the seed that torch gives them, which `torch.manual_seed` and
    transformers' `set_seed` fix.

    Further fields are stacked, padded with 0 where they have a number per token, or stay lists. `layout="packed"`
    returns a `PackedBatch`: tokens with attention_mask 0 and further fields are dropped.

    Without a tokenizer give `mask_id`, `vocab_size`, `special_ids` and `pad_id`; beside one, `special_ids` adds to its
    own. `return_tensors="np"` never imports torch.
    """

    mlm: ClassVar[bool] = True

    @overload
    def __init__(
        self: "MaskingCollator[PackedBatch]", *arguments: Any, layout: Literal["packed"], **options: Any
    ) -> None: ...

    @overload
    def __init__(
        self: "MaskingCollator[dict[str, Any]]",
        tokenizer: Any = None,
        mlm_probability: Rate = ...,
        mask_replace_prob: float = ...,
        random_replace_prob: float = ...,
        pad_to_multiple_of: int | None = None,
        return_tensors: Tensors = "pt",
        seed: int | None = None,
        *,
        layout: Literal["padded"] = "padded",
        **options: Any,
    ) -> None: ...

    def __init__(  # type: ignore[misc]  # it alone says which options there are
        self,
        tokenizer: Any = None,
        mlm_probability: Rate = MaskConfig.rate,
        mask_replace_prob: float = MaskConfig.mask_share,
        random_replace_prob: float = MaskConfig.random_share,
        pad_to_multiple_of: int | None = None,
        return_tensors: Tensors = "pt",
        seed: int | None = None,
        *,
        mlm: bool = True,
        whole_word_mask: bool = False,
        unit: str | None = None,
        count: Literal["bernoulli", "exact"] = MaskConfig.count,
        at_least_one: bool = MaskConfig.at_least_one,
        span_mean: float = MaskConfig.span_mean,
        span_max: int = MaskConfig.span_max,
        layout: Literal["padded", "packed"] = "padded",
        mask_id: int | None = None,
        vocab_size: int | None = None,
        special_ids: Sequence[int] = (),
        pad_id: int | None = None,
    ) -> None:
        check_tensors(return_tensors)
        check_choice("layout", layout, ("padded", "packed"))
        check_choice("count", count, ("bernoulli", "exact"))
        if pad_to_multiple_of is not None:
            check_number("pad_to_multiple_of", pad_to_multiple_of, "[1, inf)", Integral)
        if isinstance(tokenizer, (str, Path)):
            raise ValueError(how_to_open(tokenizer))
        self.rate = mlm_probability
        self.config = mask_config(
            mlm_probability,
            mask_replace_prob=mask_replace_prob,
            random_replace_prob=random_replace_prob,
            span_mean=span_mean,
            span_max=span_max,
            unit=unit_from(unit, mlm, whole_word_mask),
            count=count,
            at_least_one=at_least_one,
        )
        self.vocabulary = vocabulary_from(tokenizer, mask_id, vocab_size, special_ids, pad_id)
        # A `Trainer` saves it beside its checkpoints.
        self.tokenizer = tokenizer if hasattr(tokenizer, "save_pretrained") else None
        self.pad_to_multiple_of, self.return_tensors, self.layout = pad_to_multiple_of, return_tensors, layout
        self.seed = seed_from(seed)
        self._unit = UNITS[self.config.unit]
        self._rows_drawn = 0
        self._home: int | None = os.getpid()
        self._copy = 0
        self._words: WordTable | None = None
        self._ideographs_V: np.ndarray | None = None

    @classmethod
    def from_config(
        cls, tokenizer: Any, config: MaskConfig, *, seed: int, total_steps: int = 0, **options: Any
    ) -> "MaskingCollator[Any]":
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
            at_least_one=config.at_least_one,
            span_mean=config.span_mean,
            span_max=config.span_max,
            **options,
        )

    def __call__(self, examples: Sequence[Any], return_tensors: Tensors | None = None) -> Batch:
        """Collate one batch of examples; `return_tensors` counts for this batch."""
        if return_tensors is not None:
            check_tensors(return_tensors)
        given = read_examples(examples, with_words=self._unit.needs_words)
        rows, keys_R = given.rows, self._row_keys(given.row_ids, given.epochs, len(examples))
        targets, starts_word_T = self._mask(rows, keys_R, given.step, given.protected_T, given.tokenizer_words)
        if self.layout == "packed":
            if given.attended_T is not None:
                rows, targets, starts_word_T = attended_only(rows, targets, starts_word_T, given.attended_T)
            return PackedBatch(**self._finish(packed(rows, targets, starts_word_T), return_tensors))  # type: ignore[return-value]
        batch = padded(rows, targets, given.attended_T, given.columns, self.vocabulary, self.pad_to_multiple_of)
        batch = self._finish(batch, return_tensors)
        theirs = sys.modules.get("transformers.tokenization_utils_base")
        if theirs is not None and isinstance(examples[0], theirs.BatchEncoding):
            return theirs.BatchEncoding(batch)
        return batch  # type: ignore[return-value]

    @property
    def mlm_probability(self) -> Rate:
        """The rate. It cannot be set: one that changes is a function of the step."""
        return self.rate

    @property
    def mask_replace_prob(self) -> float:
        return self.config.mask_share

    @property
    def random_replace_prob(self) -> float:
        return self.config.random_share

    @property
    def whole_word_mask(self) -> bool:
        return self.config.unit == "word"

    def __repr__(self) -> str:
        config = self.config
        return (
            f"{type(self).__name__}(vocab_size={len(self.vocabulary.maskable_V)}, mlm_probability={self.rate}, "
            f"mask_replace_prob={config.mask_share}, random_replace_prob={config.random_share}, unit={config.unit!r}, "
            f"count={config.count!r}, layout={self.layout!r}, return_tensors={self.return_tensors!r}, seed={self.seed})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_home"} | {"tokenizer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._home = os.getpid()
        if process_numbers():
            # A pool gives one process several tasks, each with its own copy.
            self._home, self._copy = None, next(COPIES)

    def collate_rows(
        self,
        rows: RowBatch,
        row_ids: np.ndarray,
        epochs: np.ndarray,
        step: int,
        *,
        rate: float | np.ndarray | None = None,
        protected_T: np.ndarray | None = None,
    ) -> PackedBatch:
        """Collate rows laid end to end, as the shards give them; the rows themselves are not changed. Another `rate`
        than the collator's, or one for each row, and tokens never to choose are those of this batch."""
        rows, keys_R = RowBatch(rows.ids_T.copy(), *rows[1:]), row_keys(row_ids, self.seed, one_if_equal(epochs))
        targets, starts_word_T = self._mask(rows, keys_R, step, protected_T, rate=rate)
        return PackedBatch(**self._finish(packed(rows, targets, starts_word_T)))

    def rate_at(self, step: int | None) -> float:
        """The mask rate at a step, which only a rate that changes asks for."""
        if not callable(self.rate):
            return self.rate
        if step is None:
            raise ValueError("the mask rate depends on the step: give every example its `step`")
        rate = self.rate(step)
        if not isinstance(rate, Real) or not 0 <= rate <= 1:
            raise ValueError(
                f"mlm_probability must give a number in [0, 1] at every step; it gives {rate!r} at step {step}"
            )
        return rate

    def word_starts(self, ids_T: np.ndarray) -> np.ndarray | None:
        """Where words start, by the vocabulary alone; None where it does not show them and nothing needs them."""
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

    def _mask(
        self, rows: RowBatch, keys_R, step: int | None, protected_T=None, tokenizer_words: bool = False, rate=None
    ) -> tuple[Targets, np.ndarray | None]:
        """Choose targets and replace them in the rows; returns the targets, and where words start if that is known."""
        ids_T, starts_word_T = rows.ids_T, rows.starts_word_T
        if tokenizer_words and self.vocabulary.tokens is not None:
            starts_word_T = starts_word_T | look_up(self._ideographs(), ids_T)
        elif starts_word_T is None and (self._unit.needs_words or self.layout == "packed"):
            starts_word_T = self.word_starts(ids_T)
        targets = mask_tokens(
            ids_T,
            rows.row_starts,
            keys_R,
            self.vocabulary,
            self.config,
            rate=self.rate_at(step) if rate is None else rate,
            protected_T=protected_T,
            starts_word_T=starts_word_T,
        )
        ids_T[targets.index] = targets.new_ids
        return targets, starts_word_T

    def _ideographs(self) -> np.ndarray:
        if self._ideographs_V is None:
            assert self.vocabulary.tokens is not None
            self._ideographs_V = ideograph_starts(self.vocabulary.tokens, len(self.vocabulary.maskable_V))
        return self._ideographs_V

    def _row_keys(self, row_ids, epochs, num_rows: int) -> np.ndarray:
        if row_ids is not None:
            return row_keys(row_ids, self.seed, 0 if epochs is None else epochs)
        first, self._rows_drawn = self._rows_drawn, self._rows_drawn + num_rows
        return row_keys(np.arange(first, first + num_rows), self.seed, *process_identity(self._home, self._copy))

    def _finish(self, arrays: dict[str, Any], return_tensors: Tensors | None = None) -> dict[str, Any]:
        if (return_tensors or self.return_tensors) == "np":
            return arrays
        import torch

        return {
            name: torch.from_numpy(array) if isinstance(array, np.ndarray) else array for name, array in arrays.items()
        }
