"""Removes paragraphs that occurred before; each costs eight bytes of memory."""

import numpy as np

from data_pipelines.text.digest import text_hash

_RECENT = 1 << 20


class SeenParagraphs:
    """Remembers a 64-bit hash of every paragraph: the latest in a set, the older ones in one sorted array."""

    def __init__(self):
        self._recent: set[int] = set()
        self._older = np.empty(0, np.uint64)

    def remove_from(self, text: str) -> str:
        """The text without the paragraphs (lines) that occurred before, here or in an earlier text."""
        return "\n".join(line for line in text.split("\n") if self._is_new(line.strip()))

    def _is_new(self, paragraph: str) -> bool:
        if not paragraph:
            return False
        key = text_hash(paragraph, "paragraph")
        if key in self._recent or self._is_older(key):
            return False
        self._recent.add(key)
        if len(self._recent) >= _RECENT:
            self._older = np.union1d(self._older, np.fromiter(self._recent, np.uint64, len(self._recent)))
            self._recent.clear()
        return True

    def _is_older(self, key: int) -> bool:
        place = int(np.searchsorted(self._older, np.uint64(key)))
        return place < len(self._older) and int(self._older[place]) == key
