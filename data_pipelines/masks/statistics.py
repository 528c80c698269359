"""Measures mask rates, to be checked before a long run."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.masking import KEPT, MASKED, RANDOM, expected_targets, row_sums
from data_pipelines.rows.batch import RowBatch


@dataclass(frozen=True)
class MaskRate:
    """A count, the number it is a part of, and the expected share."""

    name: str
    count: int
    whole: int
    expected: float

    @property
    def share(self) -> float:
        return self.count / max(self.whole, 1)


@dataclass
class MaskStatistics:
    """Counts over all batches seen."""

    rows: int = 0
    tokens: int = 0
    maskable: int = 0
    selected: int = 0
    expected: float = 0.0
    """Targets that the rows have in the mean: more than the rate in very short ones, which have at least one."""
    masked: int = 0
    random: int = 0
    kept: int = 0
    random_is_original: int = 0
    """Random replacements by the token itself; expected once in the size of the vocabulary."""
    specials_touched: int = 0
    unselected_changed: int = 0
    rows_without_target: int = 0
    """Of the rows that have anything to choose."""

    def add(self, before: RowBatch, after: PackedBatch, collator: MaskingCollator[Any], step: int = 0) -> None:
        """Count one batch that the collator masked at this step; `after` holds numpy arrays."""
        vocabulary, config, rate = collator.vocabulary, collator.config, collator.rate_at(step)
        maskable_T = vocabulary.maskable_V[before.ids_T]
        index, kind = after.target_index, after.target_kind
        chosen_T = np.zeros(len(before.ids_T), bool)
        chosen_T[index] = True
        changed_T = before.ids_T != after.input_ids
        self.rows += len(before.row_starts) - 1
        self.tokens += len(before.ids_T)
        self.maskable += int(maskable_T.sum())
        self.selected += len(index)
        words_T = collator.word_starts(before.ids_T) if before.starts_word_T is None else before.starts_word_T
        expected_R = expected_targets(before.ids_T, before.row_starts, vocabulary, config, rate, words_T)
        self.expected += float(expected_R.sum())
        self.masked += int((kind == MASKED).sum())
        self.random += int((kind == RANDOM).sum())
        self.kept += int((kind == KEPT).sum())
        self.random_is_original += int((~changed_T[index] & (kind == RANDOM)).sum())
        self.specials_touched += int(((chosen_T | changed_T) & ~maskable_T).sum())
        self.unselected_changed += int((changed_T & ~chosen_T).sum())
        maskable_R, chosen_R = (row_sums(flags_T, before.row_starts) for flags_T in (maskable_T, chosen_T))
        self.rows_without_target += int(((maskable_R > 0) & (chosen_R == 0)).sum())

    def rates(self, config: MaskConfig, drawable: int) -> list[MaskRate]:
        """Every count with the share that the config asks for; `drawable` tokens can be drawn at random."""
        kept_share = abs(1 - config.mask_share - config.random_share)
        laws = [
            MaskRate("selected, of the maskable", self.selected, self.maskable, self.expected / max(self.maskable, 1)),
            MaskRate("replaced by [MASK], of the selected", self.masked, self.selected, config.mask_share),
            MaskRate("replaced at random, of the selected", self.random, self.selected, config.random_share),
            MaskRate("kept, of the selected", self.kept, self.selected, kept_share),
            MaskRate("random = original, of the random", self.random_is_original, self.random, 1 / max(drawable, 1)),
            MaskRate("special tokens touched", self.specials_touched, self.tokens, 0.0),
            MaskRate("unselected tokens changed", self.unselected_changed, self.tokens, 0.0),
        ]
        promised = [MaskRate("rows without target", self.rows_without_target, self.rows, 0.0)]
        return laws + promised if config.at_least_one else laws
