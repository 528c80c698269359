"""Masked-language modeling in which some tokens skip the middle blocks, so that a step takes less time.

Dropped are ordinary tokens that are no targets; the others see them in the first block, and again in the last (Hou and
others, 2022). Evaluation and export use every block for every token. In a window, the tokens that are left count.
"""

# T tokens, K of them that pass through the middle blocks

from dataclasses import replace

import numpy as np

from bertkit.config.recipe import Recipe
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective
from bertkit.pretrain.objectives.masked_lm import make_masking, masked_lm
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.keyed import fold, row_keys, threshold, token_bits
from data_pipelines.rows.batch import RowBatch
from data_pipelines.vocab.vocabulary import look_up

_DROPPED = 0xD409
"""Part of the key that decides which tokens are dropped."""


class DroppedTokens:
    """Collates rows as `masking` does, and drops a share of the other ordinary tokens: a function of (seed, epoch, row,
    position)."""

    def __init__(self, masking: MaskingCollator, share: float):
        self.masking, self.share = masking, share

    def collate_rows(self, rows: RowBatch, row_ids: np.ndarray, epochs: np.ndarray, step: int) -> PackedBatch:
        self.masking.return_tensors = "np"
        batch = self.masking.collate_rows(rows, row_ids, epochs, step)
        keys_R = row_keys(row_ids, fold(self.masking.seed, _DROPPED), epochs)
        dropped_T = token_bits(keys_R, rows.row_starts) < threshold(self.share)
        dropped_T &= look_up(self.masking.vocabulary.maskable_V, rows.ids_T)
        dropped_T[batch.target_index] = False
        return replace(batch, middle_index=np.flatnonzero(~dropped_T))


def token_dropping(recipe: Recipe, data: PretrainingData) -> Objective:
    masked, share = masked_lm(recipe, data), recipe.train.drop_share
    return replace(
        masked,
        summary=f"{masked.summary}; {share:.0%} of the other tokens skip the middle blocks",
        make_collator=lambda total_steps: DroppedTokens(make_masking(recipe, data, total_steps), share),
    )
