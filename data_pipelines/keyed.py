"""Randomness as a pure function of keys: integers enter, well-mixed 64-bit integers leave, nothing is remembered."""

from functools import cache

import numpy as np

# The increment and the mixing constants of splitmix64 (Steele, Lea and Flood, 2014).
GOLDEN = 0x9E3779B97F4A7C15
_STEP = np.uint64(GOLDEN)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_1, _27, _30, _31, _32 = map(np.uint64, (1, 27, 30, 31, 32))
_WRAP = 2**64 - 1


def mix(values: np.ndarray) -> np.ndarray:
    """Scramble uint64 values in place: a bijection whose every output bit depends on every input bit."""
    values ^= values >> _30
    values *= _FIRST
    values ^= values >> _27
    values *= _SECOND
    values ^= values >> _31
    return values


def fold(seed: int, *parts) -> np.ndarray:
    """One uint64 key for a seed and further integers or arrays of them, which broadcast."""
    key: int | np.ndarray = _mix_integer(seed)
    for part in parts:
        if isinstance(part, int) and isinstance(key, int):
            key = _mix_integer(key + GOLDEN * (part + 1))
        else:
            steps = np.atleast_1d(np.asarray(part)).astype(np.uint64)
            key = mix((steps + _1) * _STEP + np.uint64(key))
    return key if isinstance(key, np.ndarray) else np.array([key], np.uint64)


def token_bits(
    row_keys: np.ndarray, first_token: np.ndarray, lengths: np.ndarray, first_position: int = 0
) -> np.ndarray:
    """64 random bits for every token of rows laid end to end, from its row's key and its position in the row.

    `first_token` is where each row starts in the flat result; positions count from `first_position`.
    """
    origin = row_keys + _STEP * (first_position - first_token).astype(np.uint64)
    bits = np.repeat(origin, lengths)
    bits += _golden_steps(1 << len(bits).bit_length())[: len(bits)]
    return mix(bits)


def threshold(probability: float) -> np.uint64:
    """The bound that random 64-bit values stay below with the given probability."""
    return np.uint64(min(int(probability * 2.0**64), _WRAP))


def below(bits: np.ndarray, limit: int) -> np.ndarray:
    """Uniform integers in [0, limit), limit < 2**32, from 64 random bits each."""
    return ((bits >> _32) * np.uint64(limit)) >> _32


@cache
def _golden_steps(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint64) * _STEP


def _mix_integer(value: int) -> int:
    """`mix` for one Python integer."""
    value &= _WRAP
    value = ((value ^ (value >> 30)) * int(_FIRST)) & _WRAP
    value = ((value ^ (value >> 27)) * int(_SECOND)) & _WRAP
    return value ^ (value >> 31)
