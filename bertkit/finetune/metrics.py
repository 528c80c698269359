"""Gold and predicted tags to scores, as plain values: of spans in both readings, and of words."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from data_pipelines.labels.schemes import Reading, spans_of
from data_pipelines.labels.sentence import Sentence

Tags = Sequence[Sequence[str]]
"""A list of tags for each sentence."""


def gold_tags(sentences: Iterable[Sentence]) -> list[list[str]]:
    return [sentence.tags or [] for sentence in sentences]


def span_scores(gold: Tags, predicted: Tags, strict: bool = False) -> dict[str, Any]:
    """Whole spans, right where kind and both borders are right; and those of each kind as "types".

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
    return {**_shares(right.total(), made.total(), given.total()), "types": _by_kind(right, made, given)}


def word_scores(gold: Tags, predicted: Tags) -> dict[str, Any]:
    """Word by word: accuracy, the scores of each tag as "tags", and the mean F1 of all tags, gold or predicted."""
    _check_lengths(gold, predicted)
    pairs = Counter(pair for a, b in zip(gold, predicted, strict=True) for pair in zip(a, b, strict=True))
    right, made, given = Counter[str](), Counter[str](), Counter[str]()
    for (gold_tag, predicted_tag), count in pairs.items():
        given[gold_tag] += count
        made[predicted_tag] += count
        right[gold_tag] += count if gold_tag == predicted_tag else 0
    tags, words = _by_kind(right, made, given), pairs.total()
    macro_f1 = sum(scores["f1"] for scores in tags.values()) / max(len(tags), 1)
    return {"accuracy": right.total() / max(words, 1), "macro_f1": macro_f1, "words": words, "tags": tags}


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


def _shares(right: int, predicted: int, gold: int) -> dict[str, Any]:
    """A share of nothing is 0."""
    f1 = 2 * right / max(predicted + gold, 1)
    return {"precision": right / max(predicted, 1), "recall": right / max(gold, 1), "f1": f1, "gold": gold}


def _by_kind(right: Counter[str], made: Counter[str], given: Counter[str]) -> dict[str, dict[str, Any]]:
    return {kind: _shares(right[kind], made[kind], given[kind]) for kind in sorted(given.keys() | made.keys())}


def _strict_reading(gold: Tags, predicted: Tags) -> Reading:
    ends = any(tag[:2] in ("E-", "S-", "L-", "U-") for part in (gold, predicted) for tags in part for tag in tags)
    return "bioes" if ends else "iob2"


def _check_lengths(gold: Tags, predicted: Tags) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold sentences, but {len(predicted)} predicted ones")
    for number, (a, b) in enumerate(zip(gold, predicted, strict=True), start=1):
        if len(a) != len(b):
            raise ValueError(f"sentence {number} has {len(a)} gold tags, but {len(b)} predicted ones")
