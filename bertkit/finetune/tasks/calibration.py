"""One temperature that makes a model as sure as it is right, and how far from that it is.

Logits are divided by the temperature before they become probabilities. No decision changes by that: the likeliest
label stays the likeliest, and so does the likeliest sequence of labels.

Nearly all words of a sentence are outside of spans, and they decide which temperature fits. Spans may be far less sure
to be right, above all where training gave rare labels more weight; so a power of their probability is fitted, too.
"""

# W words over all sentences, B bins

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertkit.finetune.answers import rules_of, word_logits
from bertkit.finetune.windows import Ask, Row
from data_pipelines.labels.decoding import log_likelihood
from data_pipelines.labels.schemes import spans_of
from data_pipelines.labels.sentence import Sentence

_HOTTEST = 4.0
"""The fit stays between this and its inverse."""
_PRIOR = 10.0
"""Strength of the belief that 1 is right, in nats: a few sentences without a mistake must not make a model certain,
while some hundred words outweigh it."""
ABOUT_CALIBRATION = "Expected calibration error, the distance between confidence and truth (before: at temperature 1)"
_NUM_BINS = 15
_NARROWINGS = 24

Hits = dict[str, list[tuple[float, bool]]]
"""Pairs of a confidence and whether it was right to be sure, by what the confidence is of; what matters most first."""
Bins = dict[str, list[list[float]]]
"""By the same names, of each bin of confidences their number, their sum, and how many were right."""


class Calibration(NamedTuple):
    """What calibration must know of a task."""

    surprise: Callable[[Ask, Sequence[Sentence], Sequence[Row], Sequence[str], Mapping[str, Any]], "Surprise"]
    """How much its right answers surprise the model."""
    hits: Callable[[Sentence, Any, Any], Hits]
    """A sentence with its prediction, and how sure that was."""


Surprise = Callable[[float], np.ndarray]
"""The negative logarithm of the probability of each sentence's right answers, as a function of the temperature."""


def fit_temperature(surprise: Callable[[float], float]) -> float:
    """The temperature with the least surprise at all right answers together, by golden section over its inverse, in
    which both surprise and prior (a gamma distribution whose mode is 1) are convex."""
    ratio = (math.sqrt(5) - 1) / 2

    def cost(inverse: float) -> float:
        return surprise(1 / inverse) + _PRIOR * (inverse - math.log(inverse))

    low, high = 1 / _HOTTEST, _HOTTEST
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = cost(left), cost(right)
    for _ in range(_NARROWINGS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = cost(right)
    return 2 / (low + high)


def fit_span_power(surprise: Callable[[float], float]) -> float:
    """The power of spans' probabilities with the least surprise at which of them are right, which is convex in it."""
    return 1 / fit_temperature(lambda inverse: surprise(1 / inverse))


def span_surprise(calibration: Calibration, answers: Iterable[tuple[Sentence, tuple[Any, Any]]]) -> Surprise:
    """Here of each span that was predicted, at its being right or wrong, as a function of the power."""
    hits = [hit for sentence, prediction in answers for hit in calibration.hits(sentence, *prediction).get("spans", ())]
    sure_P, right_P = np.array(hits, float).reshape(-1, 2).T
    log_P = np.log(sure_P.clip(1e-12, 1 - 1e-12))
    return lambda power: np.where(right_P, -power * log_P, -np.log(-np.expm1(power * log_P)))


def binned(calibration: Calibration, sentences: Iterable[Sentence], predictions: Iterable[tuple[Any, Any]]) -> Bins:
    """What ranks can add up: all that the errors need."""
    bins: Bins = {}
    for sentence, prediction in zip(sentences, predictions, strict=True):
        for name, pairs in calibration.hits(sentence, *prediction).items():
            sums = bins.setdefault(name, [[0, 0.0, 0] for _ in range(_NUM_BINS)])
            for sure, right in pairs:
                place = sums[min(int(sure * _NUM_BINS), _NUM_BINS - 1)]
                place[0] += 1
                place[1] += sure
                place[2] += right
    return bins


def calibration_scores(shares: Sequence[Mapping[str, Bins]]) -> dict[str, Any]:
    """The expected calibration error of each kind of confidence: how far the mean confidence of a bin lies from the
    share that was right, averaged over all confidences. The shares of all ranks have bins by the names of the errors,
    such as with a temperature and without."""
    found: dict[str, dict[str, float]] = {}
    for name in shares[0]:
        for kind in dict.fromkeys(kind for share in shares for kind in share[name]):
            found.setdefault(kind, {})[name] = _error(share[name].get(kind, []) for share in shares)
    first, *others = found or [""]
    return found.get(first, {}) | {kind: found[kind] for kind in others}


def _error(shares: Iterable[list[list[float]]]) -> float:
    sums_B3 = sum((np.array(bins) for bins in shares if bins), np.zeros((_NUM_BINS, 3)))
    return float(np.abs(sums_B3[:, 1] - sums_B3[:, 2]).sum() / max(sums_B3[:, 0].sum(), 1))


def cooled(ask: Ask, temperature: float) -> Ask:
    """The same answers, with their logits divided by the temperature."""

    def ask_cooled(rows: Sequence[Row]) -> Iterator[tuple[list[int], Any]]:
        return ((chosen, logits / temperature) for chosen, logits in ask(rows))

    return ask_cooled


def bake_in(model: Any, temperature: float) -> None:
    """Divides by the temperature inside the model, in its last layer: whatever opens it is calibrated."""
    for parameter in getattr(model.head, "labels", model.head).classifier.parameters():
        parameter.detach().div_(temperature)


def _label_surprise(
    ask: Ask, sentences: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str], settings: Mapping[str, Any]
) -> Surprise:
    """Of one label for each word or text, under the rules of span tags where they hold. Sentences with a label that
    the model does not have are left out: no temperature makes it likely."""
    num_words = [len(sentence.tags or ()) for sentence in sentences]
    logits_WK = word_logits(ask, num_words, rows) if rows else np.zeros((0, len(labels)), np.float32)
    number = {label: index for index, label in enumerate(labels)}
    known = np.array([all(tag in number for tag in sentence.tags or ()) for sentence in sentences], bool)
    # In float32 the least surprise lies anywhere within the root of what is rounded.
    logits_WK = logits_WK[np.repeat(known, num_words)].astype(np.float64)
    kept = [sentence.tags or [] for sentence, fine in zip(sentences, known, strict=True) if fine]
    gold_W = np.array([number[tag] for tags in kept for tag in tags], np.int64)
    rules = rules_of(labels, settings)

    def surprise(temperature: float) -> np.ndarray:
        surprise_S = np.zeros(len(sentences))
        surprise_S[known] = -log_likelihood(logits_WK / temperature, list(map(len, kept)), gold_W, rules)
        return surprise_S

    return surprise


def _label_hits(sentence: Sentence, tags: list[str], sure: Any) -> Hits:
    """Of words or texts; first of spans as a whole, where they have a probability."""
    gold = sentence.tags or []
    words = [(confidence, a == b) for confidence, a, b in zip(sure.words, tags, gold, strict=True)]
    if sure.spans is None:
        return {"words": words}
    right = set(spans_of(gold))
    return {"spans": [(sure.spans[span[1:]], span in right) for span in spans_of(tags)], "words": words}


OF_LABELS = Calibration(_label_surprise, _label_hits)
