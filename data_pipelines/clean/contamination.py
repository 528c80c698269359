"""Lines of a text that share a run of words with text that must not be trained on.

Texts are compared twice: once with a word's inner punctuation as a border, once without it, so that `well-known` is
found as `well known` and as `wellknown`, and `don't` as `dont`.
"""

# W words of a text

import re
from collections.abc import Callable, Iterable

import numpy as np

from data_pipelines.clean.words import joined_words, ngram_hashes, word_hashes

_INNER = re.compile(r"(?<=[^\W_])(?:[^\w\s]|_)+(?=[^\W_])")
_READINGS: tuple[Callable[[str], str], ...] = (joined_words, lambda text: joined_words(_INNER.sub("", text)))


class ForbiddenRuns:
    """The runs of `ngram` words of some texts, as sorted hashes: 8 bytes each."""

    def __init__(self, texts: Iterable[str], ngram: int):
        self.ngram = ngram
        runs = [np.unique(ngram_hashes(word_hashes(reading(text)), ngram)) for text in texts for reading in _READINGS]
        self._hashes = np.unique(np.concatenate(runs)) if runs else np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self._hashes)

    def remove_from(self, text: str) -> tuple[str, list[str]]:
        """The text without the lines that a forbidden run touches, and those lines. A run may cross line breaks."""
        if not len(self._hashes):
            return text, []
        lines = text.split("\n")
        touched = {number for reading in _READINGS for number in self._touched([reading(line) for line in lines])}
        if not touched:
            return text, []
        kept = [line for number, line in enumerate(lines) if number not in touched]
        return "\n".join(kept), [lines[number] for number in sorted(touched)]

    def _touched(self, lines: list[str]) -> list[int]:
        """The numbers of the lines, given as their words, in which a forbidden run lies."""
        hashes = ngram_hashes(word_hashes(" ".join(lines)), self.ngram)
        if not len(hashes):
            return []
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        starts = np.flatnonzero(self._hashes[place] == hashes)
        line_W = np.repeat(np.arange(len(lines)), [len(words.split()) for words in lines])
        return np.unique(line_W[starts[:, None] + np.arange(self.ngram)]).tolist()
