"""Labeled sentences and predictions enter, everything worth knowing of them leaves as plain values for files."""

from typing import Any

from bertkit.finetune.baselines import majority_tags, word_tags
from bertkit.finetune.data import Labeled, known_words
from bertkit.finetune.metrics import confusions, span_scores, unknown_word_scores, word_scores, worst_sentences
from data_pipelines.labels.tagged import Sentence

_LONGEST_SHOWN = 60


def main_score(labeled: Labeled) -> str:
    """The number that decides which step is best."""
    return "f1" if labeled.has_spans else "accuracy"


def scores_of(
    labeled: Labeled, task: str, sentences: list[Sentence], predicted: list[list[str]], known: set[str]
) -> dict[str, Any]:
    """Spans in both readings, or words with the unknown ones apart."""
    gold = [sentence.tags or [] for sentence in sentences]
    words = word_scores(gold, predicted)
    if labeled.has_spans:
        lenient, strict = span_scores(gold, predicted), span_scores(gold, predicted, strict=True)
        return {**lenient.to_json(), "strict": strict.to_json(), "accuracy": words.accuracy}
    scores = words.to_json()
    if task == "tagging":
        scores["unknown"] = unknown_word_scores(gold, predicted, [sentence.words for sentence in sentences], known)
    return scores


def looked_at(sentences: list[Sentence], predicted: list[list[str]], worst: int) -> dict[str, Any]:
    """What was confused with what, and the sentences with most mistakes."""
    gold = [sentence.tags or [] for sentence in sentences]
    return {
        "confusions": confusions(gold, predicted),
        "worst": [
            _side_by_side(sentences[index], gold[index], predicted[index])
            for index in worst_sentences(gold, predicted, worst)
        ],
    }


def _side_by_side(sentence: Sentence, gold: list[str], predicted: list[str]) -> dict[str, Any]:
    """A sentence with its two tags for each word; of a very long one what follows the first mistake."""
    mistake = next(index for index, (a, b) in enumerate(zip(gold, predicted, strict=True)) if a != b)
    start = max(0, mistake - _LONGEST_SHOWN // 4) if len(gold) > _LONGEST_SHOWN else 0
    here = slice(start, start + _LONGEST_SHOWN)
    return {
        "place": sentence.place(start),
        "words": sentence.words[here],
        "gold": gold[here],
        "predicted": predicted[here],
    }


def baseline_scores(labeled: Labeled, task: str, sentences: list[Sentence]) -> dict[str, dict[str, Any]]:
    """What knowing frequencies alone would reach."""
    known = known_words(labeled.train)
    guesses = {"majority tag": majority_tags(labeled.train, sentences)}
    if task == "tagging":
        guesses["most frequent tag of the word"] = word_tags(labeled.train, sentences)
    return {name: scores_of(labeled, task, sentences, guess, known) for name, guess in guesses.items()}
