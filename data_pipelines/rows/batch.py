"""Rows of token ids laid end to end: what the shards hand to the collator."""

from array import array
from typing import Any, NamedTuple

import numpy as np


class RowBatch(NamedTuple):
    """T tokens, R rows, S sequences (a row holds one or more), as numpy arrays."""

    ids_T: np.ndarray
    row_starts: np.ndarray
    """(R+1,) borders of the rows."""
    sequence_starts: np.ndarray
    """(S+1,) borders of the sequences that attention stays inside."""
    starts_word_T: np.ndarray | None = None
    """Whether a token is the first of its word, where that is known."""


def naturals(rows: list[list[Any]]) -> np.ndarray:
    """One int64 array from lists of numbers from 0 on, in a quarter of the time that numpy takes for any numbers."""
    flat = array("Q")
    for row in rows:
        flat.fromlist(row)
    return np.frombuffer(flat, np.int64) if flat else np.empty(0, np.int64)
