"""(seed, step) enters, the rows of that step leave: every row once an epoch, in constant time and memory.

The row order of an epoch is a keyed permutation computed row by row, so a corpus of a billion rows needs no array,
a resume seeks at once, and the number of processes does not matter.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from data_pipelines.masks.keyed import fold, fold_each, mix

_ROUNDS = 6


class StepRows(NamedTuple):
    """The rows of one step, in order. `epochs` says how often the whole corpus was seen before each."""

    row_ids: np.ndarray
    epochs: np.ndarray


@dataclass(frozen=True)
class Plan:
    """Which rows make up each global step."""

    num_rows: int
    global_batch: int | tuple[tuple[int, int], ...]
    """Rows in a step: a number, or stages ((0, 64), (1000, 256)): 64 rows from step 0, 256 from step 1000."""
    seed: int

    def __post_init__(self):
        if self.num_rows < 1:
            raise ValueError("the corpus has no rows to train on")
        firsts, batches = zip(*self._stages, strict=True)
        if firsts[0] != 0 or list(firsts) != sorted(set(firsts)) or min(batches) < 1:
            raise ValueError(f"global_batch needs ascending stages from step 0 with positive sizes, got {self._stages}")

    def batch_of_step(self, step: int) -> int:
        """How many rows step `step` has."""
        return [batch for first, batch in self._stages if first <= step][-1]

    def rows_before_step(self, step: int) -> int:
        """How many rows the steps before `step` have together."""
        firsts = [min(first, step) for first, _ in self._stages] + [step]
        return sum((firsts[i + 1] - firsts[i]) * batch for i, (_, batch) in enumerate(self._stages))

    def rows_of_step(self, step: int) -> StepRows:
        """The rows of global step `step`; a step may reach over the end of an epoch."""
        place = self.rows_before_step(step) + np.arange(self.batch_of_step(step))
        epochs, index = np.divmod(place, self.num_rows)
        row_ids = np.empty_like(place)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            here = epochs == epoch
            row_ids[here] = permute(index[here], self.num_rows, fold(self.seed, epoch))
        return StepRows(row_ids, epochs)

    @property
    def _stages(self) -> tuple[tuple[int, int], ...]:
        return ((0, self.global_batch),) if isinstance(self.global_batch, int) else self.global_batch


def share_of_rank(rows: StepRows, rank: int, world_size: int) -> StepRows:
    """The contiguous share of a step's rows that rank `rank` of `world_size` computes."""
    size, rest = divmod(len(rows.row_ids), world_size)
    if rest:
        raise ValueError(
            f"a global batch of {len(rows.row_ids)} rows does not divide over {world_size} processes; "
            f"choose a multiple of {world_size}"
        )
    here = slice(rank * size, (rank + 1) * size)
    return StepRows(rows.row_ids[here], rows.epochs[here])


def permute(index: np.ndarray, size: int, key: int) -> np.ndarray:
    """Where each index of range(size) goes under the permutation `key`: a Feistel network on the next even power of
    two, applied again to results outside the range (less than four times in the mean)."""
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    round_keys = fold_each(key, np.arange(_ROUNDS))
    result = index.astype(np.uint64)
    walking = np.arange(len(result))
    while len(walking):
        left, right = result[walking] >> half, result[walking] & low
        for round_key in round_keys:
            left, right = right, left ^ (mix(right ^ round_key) & low)
        result[walking] = (left << half) | right
        walking = walking[result[walking] >= size]
    return result.astype(np.int64)
