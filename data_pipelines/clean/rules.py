"""Rules that separate prose from other text, in the manner of MassiveText and C4."""

# W words of a text

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.words import UNSPACED, joined_words, ngram_hashes, word_hashes

_LETTER = re.compile(r"[^\W\d_]")
_BULLETS = tuple(f"{bullet} " for bullet in "-*+•‣◦–·")
_ELLIPSES = ("...", "…")


class Text(NamedTuple):
    """A document as the rules look at it."""

    text: str
    joined: str
    """Its words with spaces between them."""
    hashes_W: np.ndarray
    spaced: list[str]
    """What spaces separate."""
    lines: list[str]

    @classmethod
    def of(cls, text: str) -> "Text":
        words = joined_words(text)
        lines = [line for line in map(str.strip, text.split("\n")) if line]
        return cls(text, words, word_hashes(words), text.split(), lines)

    @property
    def num_words(self) -> int:
        return len(self.hashes_W)

    @property
    def words(self) -> list[str]:
        return self.joined.split()


Measure = Callable[[Text, CleanConfig], float]


SHARES = tuple(number / 20 for number in range(1, 20))
LENGTHS = tuple(range(1, 20))
COUNTS = tuple(2**power for power in range(20))


class Rule(NamedTuple):
    """A number of a document, and the keys that bound it."""

    measure: Measure
    at_least: str | None = None
    at_most: str | None = None
    """None for both: it must be 0."""
    borders: tuple[float, ...] = SHARES
    """Of the bars in a histogram of it; the first begins at 0, the last has no end."""

    def bounds(self, config: CleanConfig) -> tuple[float, float]:
        if self.at_least is None and self.at_most is None:
            return 0, 0
        low = -math.inf if self.at_least is None else getattr(config, self.at_least)
        return low, math.inf if self.at_most is None else getattr(config, self.at_most)


def _word_length(text: Text, config: CleanConfig) -> float:
    num_words, num_letters = text.num_words, len(text.joined) - text.joined.count(" ")
    if UNSPACED.search(text.text):
        words = [word for word in text.words if not UNSPACED.match(word)]
        num_words, num_letters = len(words), sum(map(len, words))
    # Of a text without such words nothing can be said.
    return num_letters / num_words if num_words else config.min_word_length


def _alphabetic(text: Text, config: CleanConfig) -> float:
    # Most words are letters alone, which is told faster.
    others = [word for word in text.spaced if not word.isalpha()]
    without = len(others) - sum(map(bool, map(_LETTER.search, others)))
    return _share(len(text.spaced) - without, len(text.spaced), empty=1.0)


def _symbols(text: Text, config: CleanConfig) -> float:
    count = text.text.count("#") + sum(text.text.count(ellipsis) for ellipsis in _ELLIPSES)
    return _share(count, text.num_words)


def _bullets(text: Text, config: CleanConfig) -> float:
    return _share(sum(line.startswith(_BULLETS) for line in text.lines), len(text.lines))


def _ellipses(text: Text, config: CleanConfig) -> float:
    return _share(sum(line.endswith(_ELLIPSES) for line in text.lines), len(text.lines))


def _repeated_lines(text: Text, config: CleanConfig) -> float:
    return _share(len(text.lines) - len(set(text.lines)), len(text.lines))


def _top_bigram(text: Text, config: CleanConfig) -> float:
    counts = np.unique(ngram_hashes(text.hashes_W, 2), return_counts=True)[1]
    # A pair that occurs once says nothing, however short the document.
    return _share(2 * int(counts.max()), text.num_words) if len(counts) and counts.max() > 1 else 0.0


def _repeated_5grams(text: Text, config: CleanConfig) -> float:
    hashes = ngram_hashes(text.hashes_W, 5)
    first = np.unique(hashes, return_index=True)[1]
    repeats = np.ones(len(hashes), bool)
    repeats[first] = False
    covered_W = np.zeros(text.num_words, bool)
    for offset in range(5 if len(hashes) else 0):
        covered_W[offset : offset + len(hashes)] |= repeats
    return _share(int(covered_W.sum()), text.num_words)


def _forbidden(text: Text, config: CleanConfig) -> float:
    lower = text.text.lower()
    return sum(lower.count(phrase.lower()) for phrase in config.forbidden)


def _share(count: int, of: int, empty: float = 0.0) -> float:
    return count / of if of else empty


RULES: dict[str, Rule] = {
    "number of words": Rule(lambda text, config: text.num_words, "min_words", "max_words", COUNTS),
    "length of words": Rule(_word_length, "min_word_length", "max_word_length", LENGTHS),
    "words with letters": Rule(_alphabetic, "min_alphabetic"),
    "symbols": Rule(_symbols, at_most="max_symbols"),
    "bullets": Rule(_bullets, at_most="max_bullets"),
    "ellipses": Rule(_ellipses, at_most="max_ellipses"),
    "repeated lines": Rule(_repeated_lines, at_most="max_repeated_lines"),
    "repeated pair of words": Rule(_top_bigram, at_most="max_top_bigram"),
    "repeated runs of words": Rule(_repeated_5grams, at_most="max_repeated_5grams"),
    "forbidden phrase": Rule(_forbidden, borders=COUNTS),
}
"""In the order in which they are asked: the first that a document fails is why it goes."""


def measures(text: Text, config: CleanConfig) -> dict[str, float]:
    return {name: float(rule.measure(text, config)) for name, rule in RULES.items()}


def failed_rule(values: dict[str, float], config: CleanConfig) -> str | None:
    """The first rule that these measures break."""
    for name, rule in RULES.items():
        low, high = rule.bounds(config)
        if not low <= values[name] <= high:
            return name
    return None
