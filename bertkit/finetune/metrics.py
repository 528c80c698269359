"""Gold and predicted tags to scores: spans in both readings, and words."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_pipelines.labels.schemes import Reading, spans_of
from data_pipelines.labels.sentence import Sentence

Tags = Sequence[Sequence[str]]
"""A list of tags for each sentence."""


def gold_tags(sentences: Iterable[Sentence]) -> list[list[str]]:
    return [sentence.tags or [] for sentence in sentences]


@dataclass(frozen=True)
class Score:
    """Counts, and the shares they make. A share of nothing is 0."""

    right: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.predicted + self.gold) if self.predicted + self.gold else 0.0

    def to_json(self) -> dict[str, Any]:
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1, "gold": self.gold}


@dataclass(frozen=True)
class SpanScores(Score):
    types: dict[str, Score] = field(default_factory=dict)
    """The score of each kind of span."""

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"types": {kind: score.to_json() for kind, score in self.types.items()}}


def span_scores(gold: Tags, predicted: Tags, strict: bool = False) -> SpanScores:
    """Whole spans, right where kind and both borders are right.

    Lenient is the reading of conlleval: a tag that cannot continue a span begins one. Strict counts only spans written
    by the rules of the scheme: IOB2, or BIOES where any tag is an E- or S-.
    """
    _check_lengths(gold, predicted)
    reading: Reading = _strict_reading(gold, predicted) if strict else "lenient"
    right, made, given = Counter[str](), Counter[str](), Counter[str]()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_spans, predicted_spans = (set(spans_of(tags, reading)) for tags in (gold_tags, predicted_tags))
        given.update(span.kind for span in gold_spans)
        made.update(span.kind for span in predicted_spans)
        right.update(span.kind for span in gold_spans & predicted_spans)
    types = {kind: Score(right[kind], made[kind], given[kind]) for kind in sorted(given.keys() | made.keys())}
    return SpanScores(right.total(), made.total(), given.total(), types)


@dataclass(frozen=True)
class WordScores:
    right: int
    words: int
    tags: dict[str, Score]

    @property
    def accuracy(self) -> float:
        return self.right / self.words if self.words else 0.0

    @property
    def macro_f1(self) -> float:
        """The mean over every tag that occurs in gold or in the predictions."""
        return sum(score.f1 for score in self.tags.values()) / len(self.tags) if self.tags else 0.0

    def to_json(self) -> dict[str, Any]:
        tags = {tag: score.to_json() for tag, score in self.tags.items()}
        return {"accuracy": self.accuracy, "macro_f1": self.macro_f1, "words": self.words, "tags": tags}


def word_scores(gold: Tags, predicted: Tags) -> WordScores:
    """Word by word: accuracy, and F1 of each tag."""
    _check_lengths(gold, predicted)
    pairs = Counter(pair for a, b in zip(gold, predicted, strict=True) for pair in zip(a, b, strict=True))
    given, made = Counter[str](), Counter[str]()
    for (gold_tag, predicted_tag), count in pairs.items():
        given[gold_tag] += count
        made[predicted_tag] += count
    tags = {tag: Score(pairs[tag, tag], made[tag], given[tag]) for tag in sorted(given.keys() | made.keys())}
    return WordScores(sum(score.right for score in tags.values()), pairs.total(), tags)


def unknown_word_scores(gold: Tags, predicted: Tags, words: Tags, known: set[str]) -> dict[str, float]:
    """Accuracy on the words that the training data does not have, and how many they are."""
    hits = [
        a == b
        for gold_tags, predicted_tags, sentence in zip(gold, predicted, words, strict=True)
        for a, b, word in zip(gold_tags, predicted_tags, sentence, strict=True)
        if word not in known
    ]
    total = sum(map(len, words))
    return {"share": len(hits) / max(total, 1), "accuracy": sum(hits) / max(len(hits), 1), "words": len(hits)}


def mean_and_deviation(values: Iterable[float]) -> tuple[float, float]:
    """The mean, and the sample's standard deviation (0 for one value)."""
    values = list(values)
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
    return mean, spread**0.5


def _strict_reading(gold: Tags, predicted: Tags) -> Reading:
    ends = any(tag[:2] in ("E-", "S-", "L-", "U-") for part in (gold, predicted) for tags in part for tag in tags)
    return "bioes" if ends else "iob2"


def _check_lengths(gold: Tags, predicted: Tags) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold sentences, but {len(predicted)} predicted ones")
    for number, (a, b) in enumerate(zip(gold, predicted, strict=True), start=1):
        if len(a) != len(b):
            raise ValueError(f"sentence {number} has {len(a)} gold tags, but {len(b)} predicted ones")
