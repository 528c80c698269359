"""A number for each text, of more texts than memory holds: written to a file, mapped, and sorted in its place.

Memory holds `AT_ONCE` numbers at a time. What is mapped belongs to the system, which takes it back when it needs room.
"""

# N numbers, C of them at a time

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_pipelines import durable

AT_ONCE = 1 << 16


class Equals(NamedTuple):
    """Places of numbers that occurred before."""

    first_C: np.ndarray
    """Where each occurred first."""
    before_C: np.ndarray
    """Where it occurred last."""
    place_C: np.ndarray


def write_numbers(path: Path, pieces: Iterable[np.ndarray]) -> np.ndarray:
    """The numbers of all pieces: an array in memory if it holds as many, else one that is mapped from a new file. All
    are written before it is mapped: a disk that is full is an error of a write, and a kill where a mapped page gets no
    room."""
    rest, held = iter(pieces), [np.zeros(0, np.uint64)]
    for numbers_C in rest:
        held = [*(some_C for some_C in held if len(some_C)), numbers_C]
        if sum(map(len, held)) > AT_ONCE:
            break
    else:
        return np.concatenate(held)
    path.unlink(missing_ok=True)  # a file that is cut and written anew is flushed by some systems
    with durable.naming(path), open(path, "wb") as file:
        for numbers_C in chain(held, rest):
            file.write(numbers_C.tobytes())
    return map_numbers(path, held[-1].dtype)


def map_numbers(path: Path, kind: np.dtype) -> np.ndarray:
    """The numbers of a file; what is assigned to them is written there. An empty file cannot be mapped."""
    return np.memmap(path, kind, "r+").view(np.ndarray) if path.stat().st_size else np.zeros(0, kind)


def in_pieces(numbers_N: np.ndarray) -> Iterator[np.ndarray]:
    for at in range(0, len(numbers_N), AT_ONCE):
        yield numbers_N[at : at + AT_ONCE]


def filled(path: Path, value: int, kind: type, count: int) -> np.ndarray:
    """So many times the same number."""
    piece_C: np.ndarray = np.full(min(count, AT_ONCE), value, kind)
    return write_numbers(path, (piece_C[: count - at] for at in range(0, count, AT_ONCE)))


def unique_numbers(path: Path, pieces: Iterable[np.ndarray]) -> np.ndarray:
    """Those in any piece, sorted, each once. What repeats is dropped on the way, whenever as much was added as is
    known."""
    known, added, kind = 0, 0, np.dtype(np.uint64)
    path.write_bytes(b"")
    for numbers_C in pieces:
        kind = numbers_C.dtype
        durable.append_file(path, numbers_C.tobytes(), anew=False)
        added += len(numbers_C)
        if added > known + AT_ONCE:
            known, added = _drop_repeats(path, kind), 0
    _drop_repeats(path, kind)
    return map_numbers(path, kind)


def _drop_repeats(path: Path, kind: np.dtype) -> int:
    """Sort a file of numbers, and keep each once. Returns how many stay."""
    numbers_N, kept = map_numbers(path, kind), 0
    numbers_N.sort()
    for piece_C in in_pieces(numbers_N):
        new_C = np.unique(piece_C)
        new_C = new_C[1:] if kept and new_C[0] == numbers_N[kept - 1] else new_C
        numbers_N[kept : kept + len(new_C)] = new_C  # behind what is read next
        kept += len(new_C)
    del numbers_N
    with open(path, "r+b") as file:
        file.truncate(kept * kind.itemsize)
    return kept


def earlier_equals(numbers_N: np.ndarray, folder: Path) -> Iterator[Equals]:
    """Every number of 64 bits that occurred before, those that are equal in their order; `folder` is for files that the
    next call overwrites."""
    count = np.uint64(len(numbers_N))
    repeated = write_numbers(folder / "repeated", _repeated(numbers_N, folder))
    if not len(repeated):
        return
    members = write_numbers(folder / "members", _members(numbers_N, repeated))
    members.sort()
    last_group = last_first = last_place = -1
    for members_C in in_pieces(members):
        group_C, place_C = (numbers.astype(np.int64) for numbers in np.divmod(members_C, count))
        begins_C = np.append(group_C[0] != last_group, group_C[1:] != group_C[:-1])
        start_C = np.maximum.accumulate(np.where(begins_C, np.arange(len(group_C)), -1))
        first_C = np.where(start_C < 0, last_first, place_C[start_C])
        before_C = np.append(last_place, place_C[:-1])
        yield Equals(first_C[~begins_C], before_C[~begins_C], place_C[~begins_C])
        last_group, last_first, last_place = int(group_C[-1]), int(first_C[-1]), int(place_C[-1])


def _repeated(numbers_N: np.ndarray, folder: Path) -> Iterator[np.ndarray]:
    """The numbers that occur twice or more, sorted; one may be given twice."""
    sorted_N = write_numbers(folder / "sorted", in_pieces(numbers_N))
    sorted_N.sort()
    for at in range(0, len(sorted_N), AT_ONCE):
        piece_C = sorted_N[max(at - 1, 0) : at + AT_ONCE]
        yield np.unique(piece_C[1:][piece_C[1:] == piece_C[:-1]])


def _members(numbers_N: np.ndarray, repeated: np.ndarray) -> Iterator[np.ndarray]:
    """Of each number that occurs more than once its number among those and its place, as one number."""
    for at in range(0, len(numbers_N), AT_ONCE):
        piece_C = numbers_N[at : at + AT_ONCE]
        group_C = np.minimum(np.searchsorted(repeated, piece_C), len(repeated) - 1)
        found = np.flatnonzero(repeated[group_C] == piece_C)
        yield (group_C[found] * len(numbers_N) + at + found).astype(np.uint64)
