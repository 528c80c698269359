"""Logits of rows to one label for each word, whatever the split into windows, batches and ranks."""

# W words over all sentences, M answers, K labels

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from bertkit.finetune.windows import Ask, Row
from data_pipelines.labels.decoding import TagRules, legal_labels, span_probabilities, tag_rules
from data_pipelines.labels.schemes import Scheme, parse
from data_pipelines.labels.sentence import Sentence

LEGAL_SPANS = "legal_spans"
"""The setting that keeps tags to the rules of their scheme."""
SPAN_POWER = "span_power"
"""The setting by whose power the probability of a whole span becomes its confidence; no word's changes."""


class Confidence(NamedTuple):
    words: list[float]
    """The probability of each word's label."""
    spans: dict[tuple[int, int], float] | None = None
    """How sure each span as a whole is, by its first word and the one after its last; None without rules."""


def predict_labels(
    ask: Ask, sentences: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str], settings: Mapping[str, Any]
) -> list[tuple[list[str], Confidence]]:
    """For each sentence the likeliest label of every word, or, of span tags, the likeliest sequence that the rules of
    their scheme allow."""
    if not rows:
        return [([], Confidence([])) for _ in sentences]
    num_words = [len(sentence.words) for sentence in sentences]
    logits_WK = word_logits(ask, num_words, rows)
    rules = rules_of(labels, settings)
    spans_S: Sequence[dict[tuple[int, int], float] | None]
    if rules is None:
        best, probability_W = logits_WK.argmax(axis=1).tolist(), softmax(logits_WK).max(axis=1).tolist()
        spans_S = [None] * len(sentences)
    else:
        label_W = legal_labels(logits_WK, num_words, rules)
        confidence_W, spans_S = span_probabilities(logits_WK, num_words, label_W, rules)
        best, probability_W = label_W.tolist(), confidence_W.tolist()
    borders, power = pairwise([0, *accumulate(num_words)]), settings.get(SPAN_POWER, 1.0)
    return [
        (
            [labels[index] for index in best[start:end]],
            Confidence(probability_W[start:end], spans and {place: sure**power for place, sure in spans.items()}),
        )
        for (start, end), spans in zip(borders, spans_S, strict=True)
    ]


def text_logits(ask: Ask, texts: Sequence[Sentence], rows: Sequence[Row]) -> np.ndarray:
    """(N, K) for N texts: the mean of each text's windows."""
    return word_logits(ask, [1] * len(texts), rows)


def rules_of(labels: Sequence[str], settings: Mapping[str, Any]) -> TagRules | None:
    """The rules that tags are kept to; None where they know none."""
    return _known_rules(tuple(labels), _scheme(labels, settings))


def _scheme(labels: Sequence[str], settings: Mapping[str, Any]) -> Scheme:
    """Whose rules hold. Our spans are IOB2. A folder of another maker does not say whether its B- and I- are IOB1 or
    IOB2, so its tags stay as they are, unless its labels can only be BIOES."""
    bioes = any(parsed and parsed[0] in "ES" for parsed in map(parse, labels))
    ours = "format" in settings and settings.get("scheme") != "plain"
    if not settings.get(LEGAL_SPANS, bioes or ours):
        return "plain"
    return "bioes" if bioes else "iob2"


# Once for all sentences that a tagger reads, because the rules compare every label with every other.
_known_rules = lru_cache(maxsize=8)(tag_rules)


def word_logits(ask: Ask, num_words: Sequence[int], rows: Sequence[Row]) -> np.ndarray:
    """(W, K), the words of all sentences one after the other; several answers for one word are averaged."""
    starts = [0, *accumulate(num_words)]
    word_M, logits_MK = [], []
    for chosen, logits in ask(rows):
        word_M += [rows[index].word_M + starts[rows[index].sentence] for index in chosen]
        logits_MK.append(logits)
    # All batches are asked before the first is fetched: a GPU is waited for once.
    logits_MK = [logits if isinstance(logits, np.ndarray) else logits.cpu().numpy() for logits in logits_MK]
    index_M = np.concatenate(word_M)
    answers_W = np.bincount(index_M, minlength=starts[-1]).clip(min=1).astype(np.float32)
    sum_WK = np.zeros((starts[-1], logits_MK[0].shape[1]), np.float32)
    np.add.at(sum_WK, index_M, np.concatenate(logits_MK))
    return sum_WK / answers_W[:, None]


def softmax(logits_WK: np.ndarray) -> np.ndarray:
    """Probabilities of the labels."""
    share_WK = np.exp(logits_WK - logits_WK.max(axis=1, keepdims=True))
    return share_WK / share_WK.sum(axis=1, keepdims=True)
