"""The borders of packed sequences enter; tiles leave, each a rectangle of queries and keys for one kernel call.

Equally long neighbours are one tile, as a view of the pack. Short neighbours of different lengths are treated as one
sequence, with a mask that keeps them apart: computing what the mask hides takes less time than a call for each.
Where a token does not see all of its sequence, the sequence is cut into several tiles, each with only the keys that its
queries can reach.
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

_EVERYTHING = -1
"""As a reach or a prefix: nothing is hidden by it."""


def needed(window: int | None, max_seqlen: int) -> int | None:
    """None where the window is wider than every sequence. An exported program does not ask: it is for any length."""
    if window is None or torch.compiler.is_exporting() or window < max_seqlen - 1:
        return window
    return None


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
    """Place of each query in its sequence, where some keys are hidden."""
    reach: int = _EVERYTHING
    prefix: int = _EVERYTHING
    apart_QK: Tensor | None = None
    """Of sequences treated as one: -inf where a query may not look, as into the other sequences."""

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
        hidden_QK = hidden(self.query_places.to(like.device), key_places, self.reach, self.prefix)
        return as_band(hidden_QK, like.dtype)


def cut(
    packed: Tensor, cu_seqlens: Tensor, index_M: Tensor | None, reach: int, prefixes_S: Tensor | None
) -> tuple[Tile, ...]:
    """The tiles of a pack (T, n, H, E), or of its tokens at the ascending places `index_M` alone. A token sees
    `reach` neighbours to either side, all where that is negative, and of what comes after it only the prefix."""
    borders = tuple(cu_seqlens.tolist())
    places = None if index_M is None else tuple(index_M.tolist())
    prefixes = (_EVERYTHING,) * (len(borders) - 1) if prefixes_S is None else tuple(prefixes_S.tolist())
    width = packed.shape[-2] * packed.shape[-1]
    return _cut(borders, prefixes, places, reach, together=math.isqrt(CALL_COST // width))


def hidden(query_places: Tensor, key_places: Tensor, reach: int, prefix: int | Tensor) -> Tensor:
    """(Q, K): whether a key is too far from a query, or comes after it and is not in the prefix. Negative numbers hide
    nothing; as a tensor, (Q, 1), each query has a prefix of its own."""
    ahead_QK = key_places - query_places[:, None]
    prefix = torch.as_tensor(prefix, device=ahead_QK.device)
    hidden_QK = (ahead_QK > 0) & (key_places >= prefix) & (prefix >= 0)
    return hidden_QK if reach < 0 else hidden_QK | (ahead_QK.abs() > reach)


def as_band(hidden_QK: Tensor, dtype: torch.dtype) -> Tensor:
    """(Q, K) to add to scores: 0 where a query may look, -inf elsewhere."""
    return torch.zeros(hidden_QK.shape, dtype=dtype, device=hidden_QK.device).masked_fill_(hidden_QK, -math.inf)


# The same for all blocks of an encoder that see as far, forward and backward, so it is remembered from one to the next.
@functools.lru_cache(maxsize=8)
def _cut(
    borders: tuple[int, ...], prefixes: tuple[int, ...], places: tuple[int, ...] | None, reach: int, together: int
) -> tuple[Tile, ...]:
    groups = _grouped(borders, prefixes, together)
    if places is not None:
        return tuple(tile for group in groups for tile in _tiles_at(group, places, reach))
    return tuple(tile for group in groups for tile in _tiles_of(group, reach))


class _Group(NamedTuple):
    """Neighbouring sequences from row `start` to row `end` of the pack."""

    start: int
    end: int
    length: int
    """Of each; of sequences treated as one, of all together."""
    prefix: int
    """Of each."""
    members: "tuple[_Group, ...]" = ()
    """The sequences that are treated as one, if they are: runs of equal ones."""

    def hides(self, reach: int) -> bool:
        """Whether a token does not see all of its sequence."""
        return 0 <= reach < self.length - 1 or 0 <= self.prefix < self.length


def _grouped(borders: tuple[int, ...], prefixes: tuple[int, ...], together: int) -> list[_Group]:
    """Runs of equal neighbours, and different neighbours with at most `together` tokens in all."""
    groups: list[_Group] = []
    for run in _runs(borders, prefixes):
        last = groups[-1] if groups else None
        if last is None or run.end - last.start > together:
            groups.append(run)
            continue
        members = (*(last.members or (last,)), run)
        groups[-1] = _Group(last.start, run.end, run.end - last.start, _EVERYTHING, members)
    return groups


def _runs(borders: tuple[int, ...], prefixes: tuple[int, ...]) -> Iterator[_Group]:
    """Neighbours of one length and one prefix; empty sequences are left out."""
    run: _Group | None = None
    for (start, end), prefix in zip(itertools.pairwise(borders), prefixes, strict=True):
        if start == end:
            continue
        if run is not None and (run.length, run.prefix) == (end - start, prefix):
            run = run._replace(end=end)
            continue
        if run is not None:
            yield run
        run = _Group(start, end, end - start, prefix)
    if run is not None:
        yield run


def _tiles_of(group: _Group, reach: int) -> Iterator[Tile]:
    rows, length = slice(group.start, group.end), group.length
    num_sequences, whole = (group.end - group.start) // length, slice(0, length)
    if group.members:
        yield Tile(rows, rows, 1, whole, whole, apart_QK=_apart(group, torch.arange(length), reach))
    elif not group.hides(reach):
        yield Tile(rows, rows, num_sequences, whole, whole)
    else:
        # Short tiles waste fewer keys but cost more calls; the window itself is a good measure.
        step = max(64, reach)
        for first in range(0, length, step):
            last = min(first + step, length)
            keys = _reached(group, first, last, reach)
            yield Tile(
                rows, rows, num_sequences, slice(first, last), keys, torch.arange(first, last), reach, group.prefix
            )


def _reached(group: _Group, first: int, last: int, reach: int) -> slice:
    """The keys that any of the queries from `first` to `last` may see."""
    low, high = (0, group.length) if reach < 0 else (max(0, first - reach), min(group.length, last + reach))
    return slice(low, high if group.prefix < 0 else min(high, max(last, group.prefix)))


def _tiles_at(group: _Group, places: tuple[int, ...], reach: int) -> Iterator[Tile]:
    """One tile a sequence, or sequences treated as one, that has any of the tokens asked for; one for all where each
    is asked for one token and sees everything."""
    starts = range(group.start, group.end, group.length)
    first, last = (bisect.bisect_left(places, row) for row in (group.start, group.end))
    sequences = [(place - group.start) // group.length for place in places[first:last]]
    if not group.members and not group.hides(reach) and sequences == list(range(len(starts))):
        rows = slice(group.start, group.end)
        yield Tile(slice(first, last), rows, len(starts), slice(0, 1), slice(0, group.length))
        return
    for start in starts:
        first, last = (bisect.bisect_left(places, row) for row in (start, start + group.length))
        if first == last:
            continue
        query_places = torch.tensor(places[first:last]) - start
        shape = (slice(first, last), slice(start, start + group.length), 1, slice(0, last - first))
        keys = slice(0, group.length)
        if group.members:
            yield Tile(*shape, keys, apart_QK=_apart(group, query_places, reach))
        elif not group.hides(reach):
            yield Tile(*shape, keys)
        else:
            yield Tile(*shape, keys, query_places, reach, group.prefix)


def _apart(group: _Group, query_places: Tensor, reach: int) -> Tensor:
    """(Q, K): 0 where a query may look, -inf elsewhere, for sequences treated as one."""
    key_places = torch.arange(group.length)
    each = [(start, run.prefix) for run in group.members for start in range(run.start, run.end, run.length)]
    starts, prefixes = torch.tensor(each).unbind(1)
    starts = starts - group.start
    sequence_Q, sequence_K = (torch.bucketize(places, starts, right=True) - 1 for places in (query_places, key_places))
    # A prefix counts from the start of its sequence; places count from the start of the group.
    prefix_Q = torch.where(prefixes < 0, prefixes, starts + prefixes)[sequence_Q]
    hidden_QK = hidden(query_places, key_places, reach, prefix_Q[:, None])
    return as_band(hidden_QK | (sequence_Q[:, None] != sequence_K), torch.float32)
