"""The borders of packed sequences enter; tiles leave, each a rectangle of queries and keys for one kernel call.

Equally long neighbours are one tile, as a view of the pack. Short neighbours of different lengths are treated as one
sequence, with a mask that keeps them apart: computing what the mask hides takes less time than a call for each.
Where a token does not see all of its sequence, a long sequence is cut into several tiles, each with only the keys that
its queries can reach. Short ones with prefixes, or of which some tokens are asked for, are copied side by side and
filled up to the longest: they are too many for views.
"""

# T tokens in the pack, H heads, M tokens asked for, N sequences in a tile, Q queries and K keys of each

import bisect
import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

CALL_COST = 2**20
"""Short sequences share a call while (their tokens)² × width is at most this: as much work, on a CPU, as the call."""

_MOST_SCORES = 2**20
"""Scores of a head that sequences side by side have at most, their filling included."""

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

    def put_queries(self, rows: Tensor, values: Tensor) -> None:
        """Write values (N, H, Q, ...) of queries into rows (rows, H, ...)."""
        self.queries_of(rows).copy_(values)

    def put_keys(self, rows: Tensor, values: Tensor) -> None:
        self.keys_of(rows).copy_(values)

    def add_keys(self, rows: Tensor, values: Tensor) -> None:
        self.keys_of(rows).add_(values)

    def band(self, like: Tensor) -> Tensor | None:
        """(Q, K) to add to the scores, or None where every query sees every key."""
        if self.apart_QK is not None:
            return self.apart_QK.to(like.device, like.dtype)
        if self.query_places is None:
            return None
        key_places = torch.arange(self.keys.start, self.keys.stop, device=like.device)
        hidden_QK = hidden(self.query_places.to(like.device), key_places, self.reach, self.prefix)
        return as_band(hidden_QK, like.dtype)


class FilledTile(NamedTuple):
    """Neighbouring sequences of different lengths, copied side by side and filled up with zeros to the longest."""

    query_rows: slice
    key_rows: slice
    num_sequences: int
    queries: "SideBySide"
    keys: "SideBySide"
    band_N1QK: Tensor
    """-inf where a query may not look, as at the filling."""

    def queries_of(self, rows: Tensor) -> Tensor:
        """A copy (N, H, Q, ...) of values (rows, H, ...) that belong to queries."""
        return self.queries.copied(rows[self.query_rows]).unflatten(0, (self.num_sequences, -1)).transpose(1, 2)

    def keys_of(self, rows: Tensor) -> Tensor:
        return self.keys.copied(rows[self.key_rows]).unflatten(0, (self.num_sequences, -1)).transpose(1, 2)

    def put_queries(self, rows: Tensor, values: Tensor) -> None:
        """Write values (N, H, Q, ...) of queries into rows (rows, H, ...)."""
        rows[self.query_rows] = self.queries.end_to_end(values.transpose(1, 2).flatten(0, 1))

    def put_keys(self, rows: Tensor, values: Tensor) -> None:
        rows[self.key_rows] = self.keys.end_to_end(values.transpose(1, 2).flatten(0, 1))

    def add_keys(self, rows: Tensor, values: Tensor) -> None:
        rows[self.key_rows] += self.keys.end_to_end(values.transpose(1, 2).flatten(0, 1))

    def band(self, like: Tensor) -> Tensor:
        return self.band_N1QK.to(like.device, like.dtype)


class SideBySide(NamedTuple):
    """Where rows that lie end to end stand in a rectangle."""

    real: Tensor
    """The place of each row."""
    filling: Tensor
    """The places at which no row stands."""
    row: Tensor
    """The row of each place, any one where none stands."""

    @classmethod
    def at(cls, real: Tensor, num_places: int) -> "SideBySide":
        row = torch.full((num_places,), -1).index_copy_(0, real, torch.arange(len(real)))
        return cls(real, (row < 0).nonzero().squeeze(1), row.clamp(min=0))

    def copied(self, rows: Tensor) -> Tensor:
        row, filling = self.row.to(rows.device), self.filling.to(rows.device)
        return rows.index_select(0, row).index_fill_(0, filling, 0) if len(filling) else rows

    def end_to_end(self, places: Tensor) -> Tensor:
        return places.index_select(0, self.real.to(places.device)) if len(self.filling) else places


def cut(
    packed: Tensor, cu_seqlens: Tensor, index_M: Tensor | None, reach: int, prefixes_S: Tensor | None
) -> tuple[Tile | FilledTile, ...]:
    """The tiles of a pack (T, n, H, E), or of its tokens at the ascending places `index_M` alone. A token sees
    `reach` neighbours to either side, all where that is negative, and of what comes after it only the prefix."""
    borders = tuple(cu_seqlens.tolist())
    places = None if index_M is None else tuple(index_M.tolist())
    prefixes = (_EVERYTHING,) * (len(borders) - 1) if prefixes_S is None else tuple(prefixes_S.tolist())
    width = packed.shape[-2] * packed.shape[-1]
    return _cut(borders, prefixes, places, reach, together=math.isqrt(CALL_COST // width))


def hidden(query_places: Tensor, key_places: Tensor, reach: int, prefix: int | Tensor) -> Tensor:
    """(..., Q, K): whether a key is too far from a query, or comes after it and is not in the prefix. Negative numbers
    hide nothing. Sequences with a prefix each, (N, 1, 1), have query places (N, Q)."""
    ahead_QK = key_places - query_places[..., None]
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
) -> tuple[Tile | FilledTile, ...]:
    runs = _runs(borders, prefixes)
    groups = _grouped(runs, together) if max(prefixes, default=_EVERYTHING) < 0 else _filled(runs, together)
    tiles: list[Tile | FilledTile] = []
    for group in groups:
        if _is_side_by_side(group, places, reach, together):
            tiles += _filled_tile(group, places, reach)
        else:
            tiles += _tiles_of(group, reach) if places is None else _tiles_at(group, places, reach)
    return tuple(tiles)


class _Group(NamedTuple):
    """Neighbouring sequences from row `start` to row `end` of the pack."""

    start: int
    end: int
    length: int
    """Of each; of sequences treated as one, of all together; of those filled up, of the longest."""
    prefix: int
    """Of each."""
    members: "tuple[_Group, ...]" = ()
    """The sequences that are treated as one or filled up, if they are: runs of equal ones."""
    is_filled: bool = False

    @property
    def num_sequences(self) -> int:
        return sum(run.num_sequences for run in self.members) or (self.end - self.start) // self.length

    def hides(self, reach: int) -> bool:
        """Whether a token does not see all of its sequence."""
        return 0 <= reach < self.length - 1 or 0 <= self.prefix < self.length


def _grouped(runs: Iterable[_Group], together: int) -> list[_Group]:
    """Runs of equal neighbours, and different neighbours with at most `together` tokens in all."""
    groups: list[_Group] = []
    for run in runs:
        last = groups[-1] if groups else None
        if last is None or run.end - last.start > together:
            groups.append(run)
            continue
        members = (*(last.members or (last,)), run)
        groups[-1] = _Group(last.start, run.end, run.end - last.start, _EVERYTHING, members)
    return groups


def _filled(runs: Iterable[_Group], together: int) -> list[_Group]:
    """A short run joins its neighbours where the filling that this takes costs less than a call."""
    groups: list[_Group] = []
    for run in runs:
        last = groups[-1] if groups else run
        length, num_sequences = max(last.length, run.length), last.num_sequences + run.num_sequences
        scores = num_sequences * length**2
        filling = scores - sum(one.num_sequences * one.length**2 for one in (last, run))
        if not groups or length > together or filling > together**2 or scores > _MOST_SCORES:
            groups.append(run)
            continue
        members = (*(last.members or (last,)), run)
        groups[-1] = _Group(last.start, run.end, length, _EVERYTHING, members, is_filled=True)
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


def _is_side_by_side(group: _Group, places: tuple[int, ...] | None, reach: int, together: int) -> bool:
    if group.members or places is None:
        return group.is_filled
    return group.num_sequences > 1 and group.length <= together and not _is_one_each(group, places, reach)


def _is_one_each(group: _Group, places: tuple[int, ...], reach: int) -> bool:
    """Whether each of equal sequences is asked for one token, which sees everything."""
    first, last = (bisect.bisect_left(places, row) for row in (group.start, group.end))
    sequences = [(place - group.start) // group.length for place in places[first:last]]
    return not group.members and not group.hides(reach) and sequences == list(range(group.num_sequences))


def _tiles_at(group: _Group, places: tuple[int, ...], reach: int) -> Iterator[Tile]:
    """One tile a sequence, or sequences treated as one, that has any of the tokens asked for; one for all where each
    is asked for one token and sees everything."""
    if _is_one_each(group, places, reach):
        first, last = (bisect.bisect_left(places, row) for row in (group.start, group.end))
        rows = slice(group.start, group.end)
        yield Tile(slice(first, last), rows, group.num_sequences, slice(0, 1), slice(0, group.length))
        return
    for start in range(group.start, group.end, group.length):
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
    starts = torch.tensor([start for run in group.members for start in range(run.start, run.end, run.length)])
    starts = starts - group.start
    sequence_Q, sequence_K = (torch.bucketize(places, starts, right=True) for places in (query_places, key_places))
    hidden_QK = hidden(query_places, key_places, reach, _EVERYTHING)
    return as_band(hidden_QK | (sequence_Q[:, None] != sequence_K), torch.float32)


def _filled_tile(group: _Group, places: tuple[int, ...] | None, reach: int) -> Iterator[FilledTile]:
    """One tile of all sequences of a group, unless none of their tokens is asked for."""
    begin, end, runs = group.start, group.end, group.members or (group,)
    first, last = (begin, end) if places is None else (bisect.bisect_left(places, row) for row in (begin, end))
    if first == last:
        return
    sizes = torch.tensor([run.num_sequences for run in runs])
    length_N, prefix_N = torch.tensor([(run.length, run.prefix) for run in runs]).repeat_interleave(sizes, 0).unbind(1)
    start_N = length_N.cumsum(0) - length_N
    row_T = torch.arange(end - begin)
    row_M = row_T if places is None else torch.tensor(places[first:last]) - begin
    sequence_T, sequence_M = (torch.bucketize(rows, start_N, right=True) - 1 for rows in (row_T, row_M))
    real_keys = sequence_T * group.length + row_T - start_N[sequence_T]
    count_N = torch.bincount(sequence_M, minlength=len(length_N))
    most_queries = int(count_N.max())
    real_queries = sequence_M * most_queries + torch.arange(len(row_M)) - (count_N.cumsum(0) - count_N)[sequence_M]
    # Filling stands at the first place, so that it sees something: its softmax must not divide by zero.
    place_NQ = torch.zeros(len(length_N) * most_queries, dtype=torch.long)
    place_NQ[real_queries] = row_M - start_N[sequence_M]
    place_K = torch.arange(group.length)
    hidden_NQK = hidden(place_NQ.unflatten(0, (-1, most_queries)), place_K, reach, prefix_N[:, None, None])
    hidden_NQK = hidden_NQK | (place_K >= length_N[:, None, None])
    yield FilledTile(
        slice(first, last),
        slice(begin, end),
        len(length_N),
        SideBySide.at(real_queries, place_NQ.numel()),
        SideBySide.at(real_keys, len(length_N) * group.length),
        as_band(hidden_NQK, torch.float32)[:, None],
    )
