"""The rows of an epoch in an order that needs only a few shards at a time: for rows that are not all on this disk.

An epoch takes its shards in a random order. It begins with rows of the first shard alone; every further part of the
epoch needs one shard more, and from the `mixed`-th part on also one shard less. So a run waits for a single shard at
the start, and the rows of each shard meet those of `mixed - 1` shards before it and as many after it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data_pipelines.masks.keyed import fold, permute

# S shards, P parts of an epoch: S + mixed - 1


class Span(NamedTuple):
    """From which place in an epoch on a shard is needed, and until which one."""

    shard: int
    first: int
    end: int


class ShardOrder:
    """Each shard is cut into `mixed` slices of its rows, at random. Part p of an epoch holds slice 0 of the p-th shard,
    slice 1 of the shard before it, and so on, mixed with each other."""

    def __init__(self, rows_of_shards: Sequence[int], mixed: int, seed: int):
        self._rows_S = np.array(rows_of_shards, np.int64)
        self._first_row_S = np.cumsum(self._rows_S) - self._rows_S
        self._mixed, self._seed = mixed, seed
        self._laid_out: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def row_ids(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """The rows at these places of an epoch."""
        _, starts_P = self._layout(epoch)
        part_of_place = np.searchsorted(starts_P, places, side="right") - 1
        row_ids = np.empty_like(places)
        for part in np.unique(part_of_place):
            here = part_of_place == part
            size = int(starts_P[part + 1] - starts_P[part])
            row_ids[here] = self._rows_of_part(
                permute(places[here] - starts_P[part], size, fold(self._seed, epoch, 1, int(part))), int(part), epoch
            )
        return row_ids

    def spans(self, epoch: int) -> list[Span]:
        """When each shard is needed, in the order of their first places."""
        shards_S, starts_P = self._layout(epoch)
        return [
            Span(int(shard), int(starts_P[turn]), int(starts_P[turn + self._mixed]))
            for turn, shard in enumerate(shards_S)
        ]

    def _rows_of_part(self, places: np.ndarray, part: int, epoch: int) -> np.ndarray:
        """The rows at these places of a part, whose slices lie end to end."""
        shards_S, _ = self._layout(epoch)
        slices = np.arange(max(0, part - len(shards_S) + 1), min(self._mixed - 1, part) + 1)
        shards = shards_S[part - slices]
        first, end = self._borders(shards, slices)
        ends = np.cumsum(end - first)
        which = np.searchsorted(ends, places, side="right")
        row_ids = np.empty_like(places)
        for number in np.unique(which):
            here, shard = which == number, int(shards[number])
            in_shard = places[here] - (ends[number] - end[number])
            key = fold(self._seed, epoch, 2, shard)
            row_ids[here] = self._first_row_S[shard] + permute(in_shard, int(self._rows_S[shard]), key)
        return row_ids

    def _borders(self, shards: np.ndarray, slices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = self._rows_S[shards]
        return rows * slices // self._mixed, rows * (slices + 1) // self._mixed

    def _layout(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The shards of an epoch in their order, and the place at which each part begins, the end appended."""
        layout = self._laid_out.get(epoch)
        if layout is None:
            num_shards = len(self._rows_S)
            shards_S = permute(np.arange(num_shards), num_shards, fold(self._seed, epoch, 0))
            sizes_P = np.zeros(num_shards + self._mixed - 1, np.int64)
            for number in range(self._mixed):
                first, end = self._borders(shards_S, np.full(num_shards, number))
                sizes_P[number : number + num_shards] += end - first
            layout = shards_S, np.concatenate([[0], np.cumsum(sizes_P)])
            # A step reaches over the border of two epochs at most, and another thread may be in the next one: what is
            # remembered is replaced, never changed.
            self._laid_out = {**dict(list(self._laid_out.items())[-1:]), epoch: layout}
        return layout
