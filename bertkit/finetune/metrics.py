"""Metrics of gold and predicted tags, as plain values: scores of spans and words, mistakes, and guesses without a
model to compare with."""

import statistics
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from data_pipelines.labels.schemes import Reading, spans_of
from data_pipelines.labels.sentence import Sentence

Tags = Sequence[Sequence[str]]
"""A list of tags for each sentence."""
_LONGEST_SHOWN = 60


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
    right = Counter(a for x, y in zip(gold, predicted, strict=True) for a, b in zip(x, y, strict=True) if a == b)
    made, given = (Counter(chain.from_iterable(part)) for part in (predicted, gold))
    tags, words = _by_kind(right, made, given), given.total()
    macro_f1 = sum(scores["f1"] for scores in tags.values()) / max(len(tags), 1)
    return {"accuracy": right.total() / max(words, 1), "macro_f1": macro_f1, "words": words, "tags": tags}


def label_set_scores(gold: Tags, predicted: Tags) -> dict[str, Any]:
    """Texts with any number of labels: each label given, missed or made up counts once, and those of each label as
    "tags"; "exact" is the share of texts that have just the right labels."""
    right = Counter(label for a, b in zip(gold, predicted, strict=True) for label in set(a) & set(b))
    made, given = (Counter(chain.from_iterable(part)) for part in (predicted, gold))
    tags = _by_kind(right, made, given)
    exact = sum(set(a) == set(b) for a, b in zip(gold, predicted, strict=True)) / max(len(gold), 1)
    macro_f1 = sum(scores["f1"] for scores in tags.values()) / max(len(tags), 1)
    return {**_shares(right.total(), made.total(), given.total()), "macro_f1": macro_f1, "exact": exact, "tags": tags}


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """The share of the variance that is explained (below 0: worse than the mean of `gold` for all), the correlations of
    the values and of their ranks, and the mean error."""
    error = [b - a for a, b in zip(gold, predicted, strict=True)]
    mean = statistics.fmean(gold)
    variance = sum((value - mean) ** 2 for value in gold)
    return {
        "r2": 1 - sum(value * value for value in error) / variance if variance else 0.0,
        "pearson": _correlation(gold, predicted),
        "spearman": _correlation(_ranks(gold), _ranks(predicted)),
        "mean_error": statistics.fmean(map(abs, error)),
    }


def _correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """0 where one of the two is always the same."""
    return statistics.correlation(a, b) if len(set(a)) > 1 and len(set(b)) > 1 else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equals share the mean of theirs."""
    order = sorted(values)
    first = {value: index for index, value in reversed(list(enumerate(order)))}
    count = Counter(order)
    return [first[value] + (count[value] + 1) / 2 for value in values]


def unknown_word_scores(gold: Tags, predicted: Tags, words: Tags, known: Container[str]) -> dict[str, float]:
    """Accuracy on the words that the training data does not have, and how many they are."""
    hits = [
        a == b
        for gold_tags, predicted_tags, sentence in zip(gold, predicted, words, strict=True)
        for a, b, word in zip(gold_tags, predicted_tags, sentence, strict=True)
        if word not in known
    ]
    total = sum(map(len, words))
    return {"share": len(hits) / max(total, 1), "accuracy": sum(hits) / max(len(hits), 1), "words": len(hits)}


def label_mistakes(sentences: Sequence[Sentence], predicted: list[list[str]], most: int) -> dict[str, Any]:
    gold = gold_tags(sentences)
    worst = [
        _side_by_side(sentences[index], gold[index], predicted[index])
        for index in worst_sentences(gold, predicted, most)
    ]
    return {"confusions": confusions(gold, predicted), "worst": worst}


def text_mistakes(
    texts: Sequence[Sentence], predicted: Sequence[Any], wrong: Sequence[float], shown: Callable[[Any], str], most: int
) -> list[dict[str, Any]]:
    """The texts with the largest numbers in `wrong`, beside what is right and what was predicted."""
    order = sorted((index for index in range(len(texts)) if wrong[index]), key=lambda index: (-wrong[index], index))
    return [
        {
            "place": texts[index].place(),
            "words": [" | ".join(texts[index].words)],
            "gold": [", ".join(texts[index].tags or ())],
            "predicted": [shown(predicted[index])],
        }
        for index in order[:most]
    ]


def confusions(gold: Tags, predicted: Tags, most: int = 20) -> list[tuple[str, str, int]]:
    """(gold, predicted, how often), the most frequent mistakes first."""
    mistakes = Counter(
        (a, b)
        for gold_tags, predicted_tags in zip(gold, predicted, strict=True)
        for a, b in zip(gold_tags, predicted_tags, strict=True)
        if a != b
    )
    return [(a, b, count) for (a, b), count in sorted(mistakes.items(), key=lambda item: (-item[1], item[0]))[:most]]


def worst_sentences(gold: Tags, predicted: Tags, most: int) -> list[int]:
    """The sentences with most mistakes; of equals the shorter one, where they weigh more."""
    mistakes = [sum(a != b for a, b in zip(x, y, strict=True)) for x, y in zip(gold, predicted, strict=True)]
    order = sorted(range(len(gold)), key=lambda index: (-mistakes[index], len(gold[index]), index))
    return [index for index in order[:most] if mistakes[index]]


def training_labels(train: Sequence[Sentence]) -> dict[str, Any]:
    """What two baselines must know: the most frequent tag; and that of each word, and of the words that training has
    once, for unknown words."""
    counts: dict[str, Counter[str]] = {}
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags or (), strict=True):
            counts.setdefault(word, Counter())[tag] += 1
    every = Counter(tag for tags in counts.values() for tag in tags.elements())
    rare = Counter(tag for tags in counts.values() if tags.total() == 1 for tag in tags)
    words = {word: _most_frequent(tags) for word, tags in counts.items()}
    return {"majority": _most_frequent(every), "unknown": _most_frequent(rare or every), "words": words}


def majority_tags(known: Mapping[str, Any], sentences: Sequence[Sentence]) -> list[list[str]]:
    return [[known["majority"]] * len(sentence.words) for sentence in sentences]


def word_tags(known: Mapping[str, Any], sentences: Sequence[Sentence]) -> list[list[str]]:
    words, unknown = known["words"], known["unknown"]
    return [[words.get(word, unknown) for word in sentence.words] for sentence in sentences]


def mean_and_deviation(values: Iterable[float]) -> tuple[float, float]:
    """The mean, and the sample's standard deviation (0 for one value)."""
    values = list(values)
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


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


def _side_by_side(sentence: Sentence, gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """A sentence with its two tags for each word; of a very long one the part around its first mistake."""
    mistake = next(index for index, (a, b) in enumerate(zip(gold, predicted, strict=True)) if a != b)
    start = max(0, mistake - _LONGEST_SHOWN // 4) if len(gold) > _LONGEST_SHOWN else 0
    here = slice(start, start + _LONGEST_SHOWN)
    return {
        "place": sentence.place(start),
        "words": sentence.words[here],
        "gold": gold[here],
        "predicted": predicted[here],
    }


def _most_frequent(counts: Counter[str]) -> str:
    """Of equals the first in the alphabet, so that nothing depends on the order of the file."""
    return min(counts, key=lambda tag: (-counts[tag], tag))
