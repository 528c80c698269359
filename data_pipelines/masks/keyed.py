"""Randomness as a pure function of keys: integers to well-mixed 64-bit integers, without state."""

from functools import cache, lru_cache
from typing import Any

import numpy as np

# The increment and the mixing constants of splitmix64 (Steele, Lea and Flood, 2014).
GOLDEN = 0x9E3779B97F4A7C15
_STEP = np.uint64(GOLDEN)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ROUNDS = 6
"""Of the network in `permute`."""
_1, _27, _30, _31 = map(np.uint64, (1, 27, 30, 31))
_WRAP = 2**64 - 1
# With GOLDEN it spans a lattice without short vectors: no two tokens share a key unless their rows' numbers or their
# positions lie half a billion apart.
ROW_STEP = 0xBF58476D1CE4E5B9
_ROW_STEP = np.uint64(ROW_STEP)


def mix(values: np.ndarray) -> np.ndarray:
    """Scramble uint64 values in place: a bijection whose every output bit depends on every input bit."""
    shifted = values >> _30
    values ^= shifted
    values *= _FIRST
    values ^= np.right_shift(values, _27, out=shifted)
    values *= _SECOND
    values ^= np.right_shift(values, _31, out=shifted)
    return values


@lru_cache(maxsize=64)
def fold(seed: int, *parts: int) -> int:
    """One 64-bit key for a seed and further integers."""
    key = _mix_integer(seed)
    for part in parts:
        key = _mix_integer(key + GOLDEN * (int(part) + 1))
    return key


def fold_each(seed: int, *parts: int | np.ndarray) -> np.ndarray:
    """The keys of `fold` for a seed and arrays of integers, which broadcast."""
    keys = np.array([_mix_integer(seed)], np.uint64)
    for part in parts:
        keys = mix((np.atleast_1d(part).astype(np.uint64) + _1) * _STEP + keys)
    return keys


def row_keys(row_ids: np.ndarray, seed: int, *parts: Any) -> np.ndarray:
    """A key for each row from a seed and further numbers; `token_bits` does the mixing."""
    alike = all(isinstance(part, int) for part in parts)
    start = np.uint64(fold(seed, *parts)) if alike else fold_each(seed, *parts)
    return row_ids.astype(np.uint64) * _ROW_STEP + start


def token_bits(keys_R: np.ndarray, row_starts: np.ndarray, first_position: int = 0) -> np.ndarray:
    """64 random bits for every token of rows laid end to end, from its row's key and its position in the row.

    `row_starts` holds the borders of the rows, including the end; positions count from `first_position`.
    """
    num_tokens = int(row_starts[-1])
    golden = _golden_steps(1 << num_tokens.bit_length())
    origin = keys_R - golden[row_starts[:-1]]
    if first_position:
        origin += np.uint64(GOLDEN * first_position & _WRAP)
    bits = origin.repeat(row_starts[1:] - row_starts[:-1])
    bits += golden[:num_tokens]
    return mix(bits)


@lru_cache(maxsize=64)
def threshold(probability: float) -> np.uint64:
    """The bound that random 64-bit values stay below with the given probability."""
    return np.uint64(min(int(probability * 2.0**64), _WRAP))


def below(bits: np.ndarray, limit: int) -> np.ndarray:
    """Uniform integers in [0, limit), limit < 2**32, from 64 random bits each."""
    return bits % np.uint64(limit)


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


@cache
def _golden_steps(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint64) * _STEP


def _mix_integer(value: int) -> int:
    """`mix` for one Python integer."""
    value &= _WRAP
    value = ((value ^ (value >> 30)) * int(_FIRST)) & _WRAP
    value = ((value ^ (value >> 27)) * int(_SECOND)) & _WRAP
    return value ^ (value >> 31)
