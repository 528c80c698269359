"""How probable a model finds each label that was given, and what it would say instead.

The model must not have seen the label: a model trained on a mistake no longer doubts it.
"""

# W words over all sentences, S sentences, N texts, K labels

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from bertkit.finetune.answers import LEGAL_SPANS, rules_of, softmax, text_logits, word_logits
from bertkit.finetune.windows import Ask, Row
from data_pipelines.labels.decoding import legal_labels, span_probabilities
from data_pipelines.labels.schemes import OUTSIDE, Span, spans_of
from data_pipelines.labels.sentence import Sentence

Words = tuple[int, int]
"""The first word, and the one after the last."""


class Doubt(NamedTuple):
    """A label that was given, beside the one that the model finds most probable; they may be the same."""

    unit: str
    """What has the label: "word", "span", or what the task calls its texts."""
    words: Words
    given: str
    """Of a span its kind; O where none was marked."""
    probability: float
    """Of what was given."""
    suggested: str
    suggested_probability: float
    suggested_words: Words

    @property
    def differs(self) -> bool:
        return (self.given, self.words) != (self.suggested, self.suggested_words)


def doubt_words(
    ask: Ask, sentences: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str], settings: Mapping[str, Any]
) -> list[list[Doubt]]:
    """Of each sentence all words, and all spans where tags mark spans."""
    if not rows:
        return [[] for _ in sentences]
    num_words = [len(sentence.words) for sentence in sentences]
    logits_WK = word_logits(ask, num_words, rows)
    number = {label: index for index, label in enumerate(labels)}
    given_W = np.array([number[tag] for sentence in sentences for tag in sentence.tags or ()], np.int64)
    rules = rules_of(labels, {**settings, LEGAL_SPANS: True}) if settings.get("scheme") != "plain" else None
    if rules is None:
        prob_WK = softmax(logits_WK)
        best_W, word_W = prob_WK.argmax(axis=1), np.arange(len(prob_WK))
        return _of_words(num_words, labels, (given_W, prob_WK[word_W, given_W]), (best_W, prob_WK[word_W, best_W]))
    best_W = legal_labels(logits_WK, num_words, rules)
    given_prob_W, given_spans_S = span_probabilities(logits_WK, num_words, given_W, rules)
    best_prob_W, best_spans_S = span_probabilities(logits_WK, num_words, best_W, rules)
    doubts_S = _of_words(num_words, labels, (given_W, given_prob_W), (best_W, best_prob_W))
    for doubts, given, best in zip(doubts_S, given_spans_S, best_spans_S, strict=True):
        doubts += list(_of_spans(doubts, given, best))
    return doubts_S


def doubt_texts(
    ask: Ask, texts: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str], settings: Mapping[str, Any]
) -> list[list[Doubt]]:
    """Of each text its only label."""
    prob_NK = softmax(text_logits(ask, texts, rows))
    number = {label: index for index, label in enumerate(labels)}
    found = []
    for text, prob_K in zip(texts, prob_NK, strict=True):
        assert text.tags is not None
        given, best, whole = text.tags[0], int(prob_K.argmax()), (0, len(text.words))
        found.append(
            [Doubt("text", whole, given, float(prob_K[number[given]]), labels[best], float(prob_K[best]), whole)]
        )
    return found


def doubt_label_sets(
    ask: Ask, texts: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str], settings: Mapping[str, Any]
) -> list[list[Doubt]]:
    """Of each text all its labels at once: the product of what each label, there or not, has as probability."""
    prob_NK = 1 / (1 + np.exp(-text_logits(ask, texts, rows).astype(np.float64)))
    found = []
    for text, prob_K in zip(texts, prob_NK, strict=True):
        given_K, best_K = np.isin(labels, text.tags or ()), prob_K > 0.5
        given, best = (
            (
                ", ".join(label for label, has in zip(labels, has_K, strict=True) if has),
                float(np.where(has_K, prob_K, 1 - prob_K).prod()),
            )
            for has_K in (given_K, best_K)
        )
        found.append([Doubt("text", (0, len(text.words)), *given, *best, (0, len(text.words)))])
    return found


_Labels = tuple[np.ndarray, np.ndarray]
"""The label of every word, and its probability."""


def _of_words(num_words: Sequence[int], labels: Sequence[str], given: _Labels, best: _Labels) -> list[list[Doubt]]:
    values = [column.tolist() for column in (*given, *best)]
    return [
        [
            Doubt("word", (word, word + 1), labels[given], prob, labels[best], best_prob, (word, word + 1))
            for word, (given, prob, best, best_prob) in enumerate(
                zip(*(all_[start:end] for all_ in values), strict=True)
            )
        ]
        for start, end in pairwise([0, *accumulate(num_words)])
    ]


def _of_spans(words: Sequence[Doubt], given: Mapping[Words, float], best: Mapping[Words, float]) -> Iterator[Doubt]:
    """Each span that was given, beside the one that the model finds in its place, and each that only the model finds.
    No span at a place is as probable as the O of its least certain word."""
    given_spans = spans_of([word.given for word in words])
    best_spans = spans_of([word.suggested for word in words])
    for span in given_spans:
        place, prob = (span.start, span.end), given[span.start, span.end]
        touching = [other for other in best_spans if _overlap(span, other)]
        if touching:
            other = max(
                touching, key=lambda other: (other == span, _overlap(span, other), best[other.start, other.end])
            )
            there = (other.start, other.end)
            yield Doubt("span", place, span.kind, prob, other.kind, best[there], there)
        else:
            outside = min(word.suggested_probability for word in words[slice(*place)])
            yield Doubt("span", place, span.kind, prob, OUTSIDE, outside, place)
    for span in best_spans:
        if not any(_overlap(span, other) for other in given_spans):
            place = (span.start, span.end)
            outside = min(word.probability for word in words[slice(*place)])
            yield Doubt("span", place, OUTSIDE, outside, span.kind, best[place], place)


def _overlap(span: Span, other: Span) -> int:
    """Words that both have."""
    return max(0, min(span.end, other.end) - max(span.start, other.start))
