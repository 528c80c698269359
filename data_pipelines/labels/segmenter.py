"""Words of text without spaces, such as Chinese, Japanese or Thai, learned from the words of labeled sentences.

Every character begins a word, is inside one, ends one, or is one. The characters around it, their kinds, and the known
words that begin, end or continue there vote for one of the four, each with a learned weight (logistic regression), and
Viterbi takes the best sequence that makes words.
"""

# C characters, F features of a character, W features that have weights

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from data_pipelines.labels.decoding import legal_labels, tag_rules

_RULES = tag_rules(("B-word", "I-word", "E-word", "S-word"), "bioes")
_BEGINS, _INSIDE, _ENDS, _SINGLE = range(4)
_AROUND = ((-2, -1), (-1, 0), (0, 1), (1, 2), (2, 3), (-2, 0), (-1, 1), (0, 2), (1, 3))
_KINDS_AROUND = ((-1, 1), (0, 2), (-1, 2))
"""The slices of text, and of its kinds of characters, that vote; 0 is the character itself."""
_SPACED = frozenset("aN")
"""Latin letters and digits: next to a kind of character that no training word has them next to, runs of them are words,
since nothing was learned that could split them."""
_LONGEST = 5
"""Characters of the longest known word that votes."""
_EPOCHS, _LEARNING_RATE, _BATCH = 5, 0.2, 256
_MOST_CHARACTERS = 400_000
"""Enough to learn from; more would only take longer."""
_SCALE = 10
"""Weights are stored as tenths, which costs no accuracy."""


class LearnedSegmenter:
    """Splits text into words, which joined again give the text."""

    def __init__(self, words: Iterable[str], features: Iterable[str], weights_W4: np.ndarray):
        self._words = frozenset(words)
        self._row = {name: row for row, name in enumerate(features, start=1)}
        self._weights_W4 = np.concatenate([np.zeros((1, 4)), weights_W4])  # row 0 is of what was never seen

    def __call__(self, text: str) -> list[str]:
        if not text:
            return []
        rows_CF = [[self._row.get(name, 0) for name in names] for names in _features(text, self._words)]
        assert _RULES is not None
        role_C = legal_labels(self._weights_W4[rows_CF].sum(axis=1), [len(text)], _RULES)
        begins_C = (role_C == _BEGINS) | (role_C == _SINGLE)
        kinds = "".join(map(_kind, text))
        for place in range(1, len(text)):
            pair = kinds[place - 1 : place + 1]
            if not _SPACED.isdisjoint(pair) and f"k-1{pair}" not in self._row:
                begins_C[place] = pair[0] != pair[1]
        starts = np.flatnonzero(begins_C).tolist()
        return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]

    def to_json(self) -> dict[str, str]:
        """Long strings, since a file with a line for each of some hundred thousand numbers would be slow to read."""
        tenths = np.rint(self._weights_W4[1:] * _SCALE).astype(int).ravel().tolist()
        lists = {"words": sorted(self._words), "features": self._row, "weights": map(str, tenths)}
        return {name: "\n".join(values) for name, values in lists.items()}

    @classmethod
    def from_json(cls, values: dict[str, str]) -> "LearnedSegmenter":
        words, features, weights = (values[name].split("\n") for name in ("words", "features", "weights"))
        return cls(words, features, np.array(weights, float).reshape(-1, 4) / _SCALE)


def learn_segmenter(runs: Iterable[Sequence[str]]) -> LearnedSegmenter:
    """A segmenter from runs of words without spaces between them."""
    runs = list(runs)
    size = sum(len(word) for run in runs for word in run)
    taken = runs[:: max(1, -(-size // _MOST_CHARACTERS))]  # evenly from the whole corpus
    # A word that training has once would be known there and unknown everywhere else.
    counts = Counter(word for run in taken for word in run if len(word) <= _LONGEST)
    words = frozenset(word for word, count in counts.items() if count > 1)
    names_CF = [names for run in taken for names in _features("".join(run), words)]
    often = Counter(name for names in names_CF for name in names)
    features = [name for name, count in often.items() if count > 1]
    row = {name: number for number, name in enumerate(features, start=1)}
    rows_CF = np.array([[row.get(name, 0) for name in names] for names in names_CF], np.int64)
    role_C = np.array([role for run in taken for word in run for role in _roles(word)], np.int64)
    return LearnedSegmenter(words, features, _fit(rows_CF, role_C, len(features) + 1)[1:])


def _features(text: str, words: frozenset[str]) -> list[list[str]]:
    """The names of what votes on each character."""
    length = len(text)
    begins, ends, inside = ([0] * length for _ in range(3))  # length of the longest known word that begins here, ...
    for start in range(length):
        for size in range(1, min(_LONGEST, length - start) + 1):
            if text[start : start + size] in words:
                last = start + size - 1
                begins[start], ends[last] = size, max(size, ends[last])
                for place in range(start + 1, last):
                    inside[place] = max(size, inside[place])
    padded, kinds = f"  {text}  ", f"  {''.join(map(_kind, text))}  "
    found = []
    for at in range(2, length + 2):
        names = [f"{start}{padded[at + start : at + end]}" for start, end in _AROUND]
        names += [f"k{start}{kinds[at + start : at + end]}" for start, end in _KINDS_AROUND]
        known = f"{begins[at - 2]}{ends[at - 2]}{inside[at - 2]}"
        names += [f"b{known[0]}", f"e{known[1]}", f"i{known[2]}", f"w{known}", f"o{padded[at - 1]}{padded[at + 1]}"]
        found.append(names)
    return found


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> str:
    """One letter for each script and each sort of other characters."""
    category = unicodedata.category(character)[0]
    if category not in "LM":
        return category
    script = unicodedata.name(character, "").split(" ")[0]
    return {"LATIN": "a", "FULLWIDTH": "a", "CJK": "c", "HIRAGANA": "h", "KATAKANA": "k"}.get(script, "l")


def _roles(word: str) -> list[int]:
    return [_SINGLE] if len(word) == 1 else [_BEGINS, *[_INSIDE] * (len(word) - 2), _ENDS]


def _fit(rows_CF: np.ndarray, role_C: np.ndarray, num_rows: int) -> np.ndarray:
    """Weights by Adagrad on the cross-entropy, averaged over the second half of the epochs. Row 0 stays 0."""
    weights_W4, squares_W4 = np.zeros((num_rows, 4)), np.full((num_rows, 4), 1e-8)
    sum_W4 = np.zeros((num_rows, 4))
    generator = np.random.default_rng(0)
    for epoch in range(_EPOCHS):
        order_C = generator.permutation(len(rows_CF))
        for start in range(0, len(order_C), _BATCH):
            chosen = order_C[start : start + _BATCH]
            rows = rows_CF[chosen]
            score = weights_W4[rows].sum(axis=1)
            error = np.exp(score - score.max(axis=1, keepdims=True))
            error /= error.sum(axis=1, keepdims=True)
            error[np.arange(len(chosen)), role_C[chosen]] -= 1
            used, place = np.unique(rows, return_inverse=True)
            gradient = np.stack(
                [np.bincount(place.ravel(), np.repeat(error[:, role], rows.shape[1])) for role in range(4)], axis=1
            )
            squares_W4[used] += gradient**2
            weights_W4[used] -= _LEARNING_RATE * gradient / np.sqrt(squares_W4[used])
            weights_W4[0] = 0.0
        if epoch >= _EPOCHS // 2:
            sum_W4 += weights_W4
    return sum_W4 / (_EPOCHS - _EPOCHS // 2)
