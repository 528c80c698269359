"""What a masking unit is: a function that gives every token an arrival (see masking.py). The smallest arrivals are
chosen, and all tokens of a unit have the same."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from data_pipelines.masks.keyed import token_bits

# T tokens in the batch, R rows


class Arrivals(NamedTuple):
    arrival_T: np.ndarray
    """uint64, the same for all tokens of a unit."""
    bits_T: np.ndarray
    """uint64, each token's own random bits, which decide what replaces it."""
    first_of_unit_T: np.ndarray | None
    """bool: where units start, if count=exact counts units; None counts tokens."""


class Unit(NamedTuple):
    """One row of the table of masking units."""

    arrivals: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, Any], Arrivals]
    """Called with keys_R, row_starts (R+1 borders), maskable_T, starts_word_T and the MaskConfig."""
    needs_words: bool = False
    """Whether `arrivals` reads starts_word_T; otherwise that may be None."""
    holds_several: bool = True
    """Whether a unit may be more than one token; short rows are then treated as masking.py says."""
    start_rate: Callable[[float, Any], float] | None = None
    """From rate and MaskConfig, how often an arrival is chosen so that `rate` of the tokens become targets. For units
    that overlap; None means at the rate itself."""
    coverage: Callable[[Any, Any], Any] | None = None
    """The opposite of `start_rate`, for arrays of rates."""


def arrivals_of_runs(starts_T: np.ndarray, keys_R, row_starts: np.ndarray, maskable_T: np.ndarray) -> Arrivals:
    """Arrivals of units that are runs of tokens: each has the bits of its first token. `starts_T` marks where runs
    start; a run also ends at a row border and at a special token."""
    bits_T = token_bits(keys_R, row_starts)
    first_T = starts_T | ~maskable_T
    first_T[1:] |= ~maskable_T[:-1]
    first_T[row_starts[:-1][row_starts[:-1] < row_starts[1:]]] = True
    unit_T = np.maximum.accumulate(np.where(first_T, np.arange(len(first_T)), 0))
    return Arrivals(bits_T[unit_T], bits_T, first_T)
