"""Token ids that were made elsewhere, as a text of one character for each, so that they are treated as documents are.

Weights, parts, held-out shares and the cutting of long documents need a text and no more. The characters are those from
U+E000 on, none of which is white space or half of a character.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

_FIRST = 0xE000
MAX_ID = 0x10FFFF - _FIRST
_BYTE_TYPES = ("<i8", "<i4", "<u2")


def text_of_ids(ids: np.ndarray) -> str:
    return (ids + _FIRST).astype("<u4").tobytes().decode("utf-32-le")


def ids_of_text(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.int64) - _FIRST


def ids_of_value(value: Any, place: str) -> np.ndarray:
    """The ids of a list, an array, or the bytes of one, which say nothing of their type: the widest one in which they
    are small numbers."""
    if isinstance(value, bytes):
        return next(_readings(value), np.empty(0, np.int64))
    try:
        ids = np.asarray(value).reshape(-1)
    except ValueError:
        ids = np.empty(1, object)
    if not len(ids):
        return np.empty(0, np.int64)
    if ids.dtype.kind not in "iu":
        raise ValueError(f"{place}: a list of token ids is needed, got {str(value)[:40]}")
    if ids.min() < 0 or ids.max() > MAX_ID:
        raise ValueError(f"{place}: {ids.min() if ids.min() < 0 else ids.max()} is not a token id")
    return ids.astype(np.int64)


def _readings(data: bytes) -> Iterator[np.ndarray]:
    for kind in _BYTE_TYPES:
        if len(data) % np.dtype(kind).itemsize == 0:
            ids = np.frombuffer(data, kind).astype(np.int64)
            if len(ids) and ids.min() >= 0 and ids.max() <= MAX_ID:
                yield ids
