"""Masked-language modeling that asks for hard tokens more often than for easy ones.

How hard a token is says a model that counts the training rows: by how rare the token is, or how rarely it follows the
token before it. "York" after "New" is easy, however rare it is, and teaches little. The mean rate stays the recipe's.
"""

# T tokens, R rows, U tokens or words

from dataclasses import replace

import numpy as np

from bertkit.config.recipe import Recipe
from bertkit.evaluate.ngram import NGram
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective
from bertkit.pretrain.objectives.masked_lm import make_masking, masked_lm
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.keyed import fold, row_keys, token_bits
from data_pipelines.rows.batch import RowBatch
from data_pipelines.rows.shards import Rows
from data_pipelines.vocab.vocabulary import look_up

_HARD = 0x4A2D
"""Part of the key that thins out easy tokens."""
_LEAST, _MOST = 0.25, 2.0
"""Bounds of a token's weight, as multiples of the mean: the easiest are asked for too, and the hardest not always."""
_HIGHEST_RATE = 0.95
_SAMPLED_ROWS = 2000
_ORDERS = {"frequency": 1, "neighbor": 2}


class HardTargets:
    """Collates rows as `masking` does, at a higher rate, and protects tokens: each with a probability that leaves it
    the rate times its weight. A word, where words are masked, has the mean weight of its tokens."""

    def __init__(self, masking: MaskingCollator, counted: NGram, rows: Rows):
        self.masking, self.counted, self.mean = masking, counted, 1.0
        sample = rows.gather(np.arange(0, len(rows), max(1, len(rows) // _SAMPLED_ROWS)))
        self.mean = float(self.surprise(sample)[self.maskable(sample)].mean())
        self.scale = 1 / float(self.weights(sample)[self.maskable(sample)].mean())

    def collate_rows(self, rows: RowBatch, row_ids: np.ndarray, epochs: np.ndarray, step: int) -> PackedBatch:
        self.masking.return_tensors = "np"
        keys_R = row_keys(row_ids, fold(self.masking.seed, _HARD), epochs)
        rate_T = self.masking.rate_at(step) * self.scale * self.weights(rows)
        highest = min(self.masking.rate_at(step) * self.scale * _MOST, _HIGHEST_RATE)
        # Of a word, all tokens draw what its first one draws.
        draw_T = (token_bits(keys_R, rows.row_starts) / 2.0**64)[self.unit_starts(rows)][self.units(rows)]
        return self.masking.collate_rows(
            rows, row_ids, epochs, step, rate=highest, protected_T=draw_T >= rate_T / highest
        )

    def weights(self, rows: RowBatch) -> np.ndarray:
        """(T,) how hard each token is, as a multiple of the mean, within the bounds."""
        weight_T, unit_T = np.clip(self.surprise(rows) / self.mean, _LEAST, _MOST), self.units(rows)
        return (np.bincount(unit_T, weight_T) / np.bincount(unit_T))[unit_T]

    def surprise(self, rows: RowBatch) -> np.ndarray:
        return -self.counted.token_log_probs(rows.ids_T.astype(np.int64), rows.sequence_starts[:-1])

    def maskable(self, rows: RowBatch) -> np.ndarray:
        return look_up(self.masking.vocabulary.maskable_V, rows.ids_T)

    def units(self, rows: RowBatch) -> np.ndarray:
        """(T,) the number of each token's unit."""
        starts_T = np.zeros(len(rows.ids_T), np.int64)
        starts_T[self.unit_starts(rows)] = 1
        return starts_T.cumsum() - 1

    def unit_starts(self, rows: RowBatch) -> np.ndarray:
        """(U,) the first token of each word, or all where tokens are masked."""
        starts_T = rows.starts_word_T if self.masking.config.unit == "word" else None
        if starts_T is None:
            return np.arange(len(rows.ids_T))
        starts_T = starts_T | ~self.maskable(rows)
        starts_T[rows.row_starts[:-1]] = True
        return np.flatnonzero(starts_T)


def hard_targets(recipe: Recipe, data: PretrainingData) -> Objective:
    if recipe.mask.unit not in ("token", "word"):
        raise ValueError(f"mask.unit={recipe.mask.unit}: train.objective=hard-targets masks tokens or words")
    masked, special = masked_lm(recipe, data), data.tokenizer.special
    counted: list[NGram] = []

    def make_collator(total_steps: int) -> HardTargets:
        if not counted:
            order = _ORDERS[recipe.train.difficulty]
            counted.append(NGram.of_rows(data.counted, order, sorted(special.special_ids - {special.unk_id})))
        return HardTargets(make_masking(recipe, data, total_steps), counted[0], data.counted)

    return replace(
        masked,
        summary=f"{masked.summary}; hard tokens (by {recipe.train.difficulty}) more often",
        make_collator=make_collator,
    )
