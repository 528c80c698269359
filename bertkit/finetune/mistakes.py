"""Gold and predicted labels to what was confused with what, and the sentences with most mistakes."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bertkit.finetune.metrics import Tags, gold_tags
from data_pipelines.labels.sentence import Sentence

_LONGEST_SHOWN = 60


def label_mistakes(sentences: Sequence[Sentence], predicted: list[list[str]], most: int) -> dict[str, Any]:
    gold = gold_tags(sentences)
    worst = [
        _side_by_side(sentences[index], gold[index], predicted[index])
        for index in worst_sentences(gold, predicted, most)
    ]
    return {"confusions": confusions(gold, predicted), "worst": worst}


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
