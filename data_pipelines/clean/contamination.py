"""Lines of a text that share a run of words with text that must not be trained on."""

# W words of a text

from collections.abc import Iterable

import numpy as np

from data_pipelines.clean.words import ngram_hashes, word_hashes, words_of


class ForbiddenRuns:
    """The runs of `ngram` words of some texts, as sorted hashes: 8 bytes each."""

    def __init__(self, texts: Iterable[str], ngram: int):
        self.ngram = ngram
        runs = [np.unique(ngram_hashes(word_hashes(words_of(text)), ngram)) for text in texts]
        self._hashes = np.unique(np.concatenate(runs)) if runs else np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self._hashes)

    def remove_from(self, text: str) -> tuple[str, list[str]]:
        """The text without the lines that a forbidden run touches, and those lines. A run may cross line breaks."""
        lines = text.split("\n")
        words = [words_of(line) for line in lines]
        hashes = ngram_hashes(word_hashes([word for of_line in words for word in of_line]), self.ngram)
        if not len(self._hashes) or not len(hashes):
            return text, []
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        starts = np.flatnonzero(self._hashes[place] == hashes)
        if not len(starts):
            return text, []
        line_W = np.repeat(np.arange(len(lines)), [len(of_line) for of_line in words])
        touched = set(np.unique(line_W[starts[:, None] + np.arange(self.ngram)]).tolist())
        kept = [line for number, line in enumerate(lines) if number not in touched]
        return "\n".join(kept), [lines[number] for number in sorted(touched)]
