"""The borders of packed sequences enter; tiles leave, each a rectangle of queries and keys for one kernel call.

Equally long neighbours are one tile, as a view of the pack. Short neighbours of different lengths are treated as one
sequence, with a mask that keeps them apart: computing what the mask hides takes less time than a call for each.
A local window cuts a sequence into several tiles, each with only the keys it can reach.
"""

# T tokens in the pack, H heads, M tokens asked for, N sequences in a tile, Q queries and K keys of a tile

import bisect
import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

CALL_COST = 2**20
"""Short sequences share a call while (their tokens)² × width is at most this: as much work, on a CPU, as the call."""


class Tile(NamedTuple):
    """Neighbouring sequences of one length, or treated as one, and which of their queries see which of their keys."""

    query_rows: slice
    """The sequences' rows among the queries."""
    key_rows: slice
    """The sequences' rows among the keys: every token of theirs."""
    num_sequences: int
    queries: slice
    """Of each sequence's queries."""
    keys: slice
    """Of each sequence's tokens."""
    query_places: Tensor | None = None
    """Place of each query in its sequence, where a window hides some keys."""
    window: int = -1
    apart_QK: Tensor | None = None
    """Of sequences treated as one: -inf where query and key belong to different ones or are too far from each other."""

    def queries_of(self, rows: Tensor) -> Tensor:
        """A view (N, H, Q, ...) of values (rows, H, ...) that belong to queries."""
        return rows[self.query_rows].unflatten(0, (self.num_sequences, -1))[:, self.queries].transpose(1, 2)

    def keys_of(self, rows: Tensor) -> Tensor:
        return rows[self.key_rows].unflatten(0, (self.num_sequences, -1))[:, self.keys].transpose(1, 2)

    def band(self, like: Tensor) -> Tensor | None:
        """(Q, K) to add to the scores, or None where every query sees every key."""
        if self.apart_QK is not None:
            return self.apart_QK.to(like.device, like.dtype)
        if self.query_places is None:
            return None
        key_places = torch.arange(self.keys.start, self.keys.stop, device=like.device)
        return hidden_band(self.query_places.to(like.device), key_places, self.window, like.dtype)


def cut(packed: Tensor, cu_seqlens: Tensor, index_M: Tensor | None, reach: int) -> tuple[Tile, ...]:
    """The tiles of a pack (T, n, H, E), or of its tokens at the ascending places `index_M` alone. A token sees
    `reach` neighbours to either side, all where that is negative."""
    places = None if index_M is None else tuple(index_M.tolist())
    width = packed.shape[-2] * packed.shape[-1]
    return _cut(tuple(cu_seqlens.tolist()), places, reach, together=math.isqrt(CALL_COST // width))


def hidden_band(query_places: Tensor, key_places: Tensor, window: int, dtype: torch.dtype) -> Tensor:
    """(Q, K): 0 where a query may look, -inf elsewhere."""
    far_QK = (query_places[:, None] - key_places).abs() > window
    return torch.zeros(far_QK.shape, dtype=dtype, device=far_QK.device).masked_fill_(far_QK, -math.inf)


# The same for all blocks of an encoder that see as far, forward and backward, so it is remembered from one to the next.
@functools.lru_cache(maxsize=8)
def _cut(borders: tuple[int, ...], places: tuple[int, ...] | None, reach: int, together: int) -> tuple[Tile, ...]:
    groups = _grouped(borders, together)
    if places is not None:
        return tuple(tile for group in groups for tile in _tiles_at(group, places, reach))
    return tuple(tile for group in groups for tile in _tiles_of(group, reach))


class _Group(NamedTuple):
    """Neighbouring sequences from row `start` to row `end` of the pack."""

    start: int
    end: int
    length: int
    """Of each; of sequences treated as one, of all together."""
    starts: tuple[int, ...] = ()
    """Of sequences treated as one: the row where each starts."""


def _grouped(borders: tuple[int, ...], together: int) -> list[_Group]:
    """Runs of equally long neighbours, and neighbours of different lengths with at most `together` tokens in all."""
    groups: list[_Group] = []
    for start, end, length in _runs(borders):
        last = groups[-1] if groups else None
        if last is None or end - last.start > together:
            groups.append(_Group(start, end, length))
            continue
        before = last.starts or range(last.start, last.end, last.length)
        groups[-1] = _Group(last.start, end, end - last.start, (*before, *range(start, end, length)))
    return groups


def _runs(borders: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Start, end and length of each run of equally long neighbours; empty sequences are left out."""
    run_start, run_length = 0, 0
    for start, end in itertools.pairwise(borders):
        if end - start not in (0, run_length):
            if start > run_start:
                yield run_start, start, run_length
            run_start, run_length = start, end - start
    if borders[-1] > run_start:
        yield run_start, borders[-1], run_length


def _tiles_of(group: _Group, reach: int) -> Iterator[Tile]:
    rows, length = slice(group.start, group.end), group.length
    num_sequences, whole = (group.end - group.start) // length, slice(0, length)
    if group.starts:
        yield Tile(rows, rows, 1, whole, whole, apart_QK=_apart(group, torch.arange(length), reach))
    elif reach < 0 or reach >= length - 1:
        yield Tile(rows, rows, num_sequences, whole, whole)
    else:
        # Short tiles waste fewer keys but cost more calls; the window itself is a good measure.
        step = max(64, reach)
        for first in range(0, length, step):
            last = min(first + step, length)
            keys = slice(max(0, first - reach), min(length, last + reach))
            yield Tile(rows, rows, num_sequences, slice(first, last), keys, torch.arange(first, last), reach)


def _tiles_at(group: _Group, places: tuple[int, ...], reach: int) -> Iterator[Tile]:
    """One tile a sequence, or sequences treated as one, that has any of the tokens asked for."""
    for start in range(group.start, group.end, group.length):
        first, last = (bisect.bisect_left(places, row) for row in (start, start + group.length))
        if first == last:
            continue
        query_places = torch.tensor(places[first:last]) - start
        shape = (slice(first, last), slice(start, start + group.length), 1, slice(0, last - first))
        keys = slice(0, group.length)
        if group.starts:
            yield Tile(*shape, keys, apart_QK=_apart(group, query_places, reach))
        elif reach < 0 or reach >= group.length - 1:
            yield Tile(*shape, keys)
        else:
            yield Tile(*shape, keys, query_places, reach)


def _apart(group: _Group, query_places: Tensor, reach: int) -> Tensor:
    """(Q, K): 0 where a query may look, -inf elsewhere, for sequences treated as one."""
    key_places = torch.arange(group.length)
    starts = torch.tensor(group.starts) - group.start
    sequence_Q, sequence_K = (torch.bucketize(places, starts, right=True) for places in (query_places, key_places))
    band_QK = hidden_band(query_places, key_places, group.length if reach < 0 else reach, torch.float32)
    return band_QK.masked_fill_(sequence_Q[:, None] != sequence_K, -math.inf)
