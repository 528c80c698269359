"""Masked-language modeling with another mask rate in each row, as masked diffusion models are trained.

The rate of a row is drawn evenly from as wide an interval around the recipe's rate as lies between 0 and 1: with
mask.rate=0.5 from all of it. Rows that hide little and rows that hide nearly everything are both met. Every target
counts the same; a diffusion model's bound would weigh those of a row by one over its rate.
"""

# R rows

from dataclasses import replace

import numpy as np

from bertkit.config.recipe import Recipe
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective
from bertkit.pretrain.objectives.masked_lm import make_masking, masked_lm
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.keyed import below, fold, mix, row_keys
from data_pipelines.rows.batch import RowBatch

_RATE = 0xD1FF
"""Part of the key that a row's rate is drawn with."""
LEVELS = 32
"""So many rates, evenly spaced."""


class RateOfEachRow:
    """Collates each row as `masking` does with a rate that is a function of (seed, epoch, row)."""

    def __init__(self, masking: MaskingCollator):
        self.masking = masking

    def collate_rows(self, rows: RowBatch, row_ids: np.ndarray, epochs: np.ndarray, step: int) -> PackedBatch:
        self.masking.return_tensors = "np"
        rates_R = self.rates(row_ids, epochs, step)
        return self.masking.collate_rows(rows, row_ids, epochs, step, rate=rates_R)

    def rates(self, row_ids: np.ndarray, epochs: np.ndarray, step: int) -> np.ndarray:
        """(R,) the rate of each row; their mean is the collator's."""
        mean = self.masking.rate_at(step)
        level_R = below(mix(row_keys(row_ids, fold(self.masking.seed, _RATE), epochs)), LEVELS)
        return mean + min(mean, 1 - mean) * ((2 * level_R + 1) / LEVELS - 1)


def diffusion(recipe: Recipe, data: PretrainingData) -> Objective:
    masked = masked_lm(recipe, data)
    return replace(
        masked,
        summary=f"{masked.summary}, on average: each row has its own rate",
        make_collator=lambda total_steps: RateOfEachRow(make_masking(recipe, data, total_steps)),
    )
