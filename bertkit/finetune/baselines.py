"""Guesses without a model, which every score should be compared with."""

from collections import Counter
from collections.abc import Sequence

from data_pipelines.labels.sentence import Sentence


def majority_tags(train: Sequence[Sentence], sentences: Sequence[Sentence]) -> list[list[str]]:
    """The tag that is most frequent in training, for every word."""
    tag = _most_frequent(Counter(tag for sentence in train for tag in sentence.tags or ()))
    return [[tag] * len(sentence.words) for sentence in sentences]


def word_tags(train: Sequence[Sentence], sentences: Sequence[Sentence]) -> list[list[str]]:
    """For each word the tag that it has most often in training; unknown words get the most frequent tag of words
    that training has once."""
    counts: dict[str, Counter[str]] = {}
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags or (), strict=True):
            counts.setdefault(word, Counter())[tag] += 1
    rare = Counter(tag for tags in counts.values() if tags.total() == 1 for tag in tags)
    unknown = _most_frequent(rare or Counter(tag for tags in counts.values() for tag in tags.elements()))
    best = {word: _most_frequent(tags) for word, tags in counts.items()}
    return [[best.get(word, unknown) for word in sentence.words] for sentence in sentences]


def _most_frequent(counts: Counter[str]) -> str:
    """Of equals the first in the alphabet, so that nothing depends on the order of the file."""
    return min(counts, key=lambda tag: (-counts[tag], tag))
