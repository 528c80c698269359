"""(seed, step) enters, the rows of that step leave: every row once an epoch, in constant time and memory.

The row order of an epoch is a keyed permutation computed row by row, so a corpus of a billion rows needs no array,
a resume seeks at once, and the number of processes does not matter.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from data_pipelines.masks.keyed import fold, permute
from data_pipelines.masks.shard_order import ShardOrder, Span


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
    order: ShardOrder | None = None
    """Which rows come near each other: those of a few shards; None mixes all rows."""

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
            row_ids[here] = self._row_ids(index[here], epoch)
        return StepRows(row_ids, epochs)

    def spans(self, epoch: int, num_shards: int) -> list[Span]:
        """When each of the shards that hold the rows is needed, in the order in which they are needed."""
        if self.order is not None:
            return self.order.spans(epoch)
        return [Span(shard, 0, self.num_rows) for shard in range(num_shards)]

    def _row_ids(self, places: np.ndarray, epoch: int) -> np.ndarray:
        if self.order is not None:
            return self.order.row_ids(places, epoch)
        return permute(places, self.num_rows, fold(self.seed, epoch))

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
