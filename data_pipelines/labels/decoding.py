"""Scores of every word become the most probable tags that a scheme allows, with probabilities under the same rules.

A tagger scores every word by itself, so its best tags may put an I-PER after an O. Here the tags of a sentence are
chosen together: among the sequences that the scheme allows, the one with the highest product of probabilities
(Viterbi). Where the best tag of each word is allowed already, that is the answer, so only the others are searched.
"""

# W words over all sentences, S sentences, K labels

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data_pipelines.labels.schemes import Scheme, parse


class TagRules(NamedTuple):
    """What a scheme allows, for the labels of one model."""

    labels: tuple[str, ...]
    kind_K: np.ndarray
    """A number for each kind of span; outside of spans another one."""
    spans_K: np.ndarray
    """Whether a tag is of a span."""
    follows_KK: np.ndarray
    """Whether the tag of a column may follow the tag of a row."""
    continues_KK: np.ndarray
    """Whether it then belongs to the same span."""
    begins_K: np.ndarray
    ends_K: np.ndarray
    """Whether a tag may be first, or last, in a sentence."""


def tag_rules(labels: Sequence[str], scheme: Scheme) -> TagRules | None:
    """The rules of a scheme; None for plain tags, which may follow each other as they like."""
    parsed = [parse(label) for label in labels]
    if scheme == "plain" or not all(parsed):
        return None
    tags = [tag for tag in parsed if tag is not None]
    continues_KK = np.array([[_continues(before, here) for here in tags] for before in tags])
    prefix_K = np.array([prefix for prefix, _ in tags])
    if scheme == "iob2":  # I- only continues
        begins_K = prefix_K != "I"
        follows_KK, ends_K = continues_KK | begins_K, np.ones(len(tags), bool)
    elif scheme == "iob1":  # B- only where it touches a span of the same kind
        begins_K = prefix_K != "B"
        touches_KK = np.array([[before[0] != "O" and before[1] == here[1] for here in tags] for before in tags])
        follows_KK, ends_K = touches_KK | begins_K, np.ones(len(tags), bool)
    else:  # bioes: what B- or I- opened must be continued to its E-
        begins_K, ends_K = np.isin(prefix_K, ("O", "B", "S")), np.isin(prefix_K, ("O", "E", "S"))
        follows_KK = np.where(ends_K[:, None], begins_K, continues_KK)
    kinds = sorted({(prefix == "O", kind) for prefix, kind in tags})
    kind_K = np.array([kinds.index((prefix == "O", kind)) for prefix, kind in tags])
    return TagRules(tuple(labels), kind_K, prefix_K != "O", follows_KK, continues_KK, begins_K, ends_K)


def legal_labels(logits_WK: np.ndarray, num_words: Sequence[int], rules: TagRules) -> np.ndarray:
    """The label of every word: of each sentence the best sequence that the rules allow."""
    label_W = logits_WK.argmax(axis=1)
    broken_S = _broken_sentences(label_W, num_words, rules)
    if not broken_S.any():
        return label_W
    # Only the words of these sentences are looked at, and only theirs change.
    starts_S, counts_S = _longest_first(num_words, np.flatnonzero(broken_S))
    broken_W = np.repeat(broken_S, num_words)
    label_W[broken_W] = _viterbi(logits_WK, starts_S, counts_S, rules)[broken_W]
    return label_W


def span_probabilities(
    logits_WK: np.ndarray, num_words: Sequence[int], label_W: np.ndarray, rules: TagRules
) -> tuple[np.ndarray, list[dict[tuple[int, int], float]]]:
    """The probability of each word's label, and of each sentence's spans as a whole, by (start, end): the summed
    probability of all allowed sequences that have just this span there, divided by that of all allowed sequences."""
    prob_WK = _probabilities(logits_WK)
    forward_WK, scale_W = _forward(prob_WK, num_words, rules)
    backward_WK = _backward(prob_WK, scale_W, num_words, rules)
    word_W = np.arange(len(label_W))
    confidence_W = np.minimum((forward_WK * backward_WK)[word_W, label_W], 1.0)  # rounding may add a last digit
    chart = _Chart(prob_WK, scale_W, forward_WK, backward_WK)
    return confidence_W, _spans_with_probability(chart, num_words, label_W, rules)


def log_likelihood(
    logits_WK: np.ndarray, num_words: Sequence[int], label_W: np.ndarray, rules: TagRules | None
) -> np.ndarray:
    """Of each sentence the logarithm of the probability of these labels, all allowed, among all sequences that the
    rules allow."""
    prob_WK = _probabilities(logits_WK)
    log_W = np.log(prob_WK[np.arange(len(label_W)), label_W])
    if rules is not None:
        _, scale_W = _forward(prob_WK, num_words, rules)
        log_W -= np.log(scale_W)
    sentence_W = np.repeat(np.arange(len(num_words)), np.asarray(num_words, np.int64))
    return np.bincount(sentence_W, log_W, minlength=len(num_words))


class _Chart(NamedTuple):
    """The probabilities of all words, and the two passes over them."""

    prob_WK: np.ndarray
    scale_W: np.ndarray
    forward_WK: np.ndarray
    backward_WK: np.ndarray


def _spans_with_probability(
    chart: _Chart, num_words: Sequence[int], label_W: np.ndarray, rules: TagRules
) -> list[dict[tuple[int, int], float]]:
    """A span is opened without continuing what was before, continued word by word, and not continued after its end.
    All spans of all sentences are computed at once."""
    prob_WK, scale_W, forward_WK, backward_WK = chart
    apart_KK = rules.follows_KK & ~rules.continues_KK
    # IOB1 opens the same span by B- after one of its kind and by I- elsewhere; both are continued alike.
    alike_KK = (rules.continues_KK[:, None] == rules.continues_KK).all(axis=2)
    alike_KK &= rules.kind_K[:, None] == rules.kind_K
    sentence_W, first_W = np.repeat(np.arange(len(num_words)), num_words), np.repeat(_starts(num_words), num_words)
    inside_W = np.zeros(len(label_W) + 1, bool)
    inside_W[1:-1] = rules.continues_KK[label_W[:-1], label_W[1:]] & (sentence_W[1:] == sentence_W[:-1])
    within_W = rules.spans_K[label_W]
    # P spans: their first words, their last ones, and then whether words of the same sentence surround them.
    first_P = np.flatnonzero(within_W & ~inside_W[:-1])
    last_P = np.flatnonzero(within_W & ~inside_W[1:])
    led_P, followed_P = first_P > first_W[first_P], np.append(first_W, len(label_W))[last_P + 1] <= last_P
    into_PK = np.tile(rules.begins_K.astype(np.float64), (len(first_P), 1))
    into_PK[led_P] = forward_WK[first_P[led_P] - 1] @ apart_KK
    chance_P = (into_PK * prob_WK[first_P] * alike_KK[label_W[first_P]]).sum(axis=1) / scale_W[first_P]
    further_W = np.flatnonzero(inside_W[:-1] & within_W)
    of_span_W = np.searchsorted(first_P, further_W, side="right") - 1
    log_W = np.log(prob_WK[further_W, label_W[further_W]] / scale_W[further_W])
    chance_P *= np.exp(np.bincount(of_span_W, log_W, minlength=len(first_P)))
    after_P = last_P[followed_P] + 1
    to_come_PK = apart_KK[label_W[after_P - 1]] * prob_WK[after_P] * backward_WK[after_P]
    chance_P[followed_P] *= to_come_PK.sum(axis=1) / scale_W[after_P]
    spans_S: list[dict[tuple[int, int], float]] = [{} for _ in num_words]
    starts_P, ends_P = first_P - first_W[first_P], last_P + 1 - first_W[first_P]
    places = zip(sentence_W[first_P].tolist(), starts_P.tolist(), ends_P.tolist(), strict=True)
    for (sentence, start, end), chance in zip(places, np.minimum(chance_P, 1.0).tolist(), strict=True):
        spans_S[sentence][start, end] = chance
    return spans_S


def _continues(before: tuple[str, str], here: tuple[str, str]) -> bool:
    return before[0] in "BI" and here[0] in "IE" and before[1] == here[1]


def _starts(num_words: Sequence[int]) -> np.ndarray:
    return (
        np.concatenate([[0], np.cumsum(num_words)[:-1]]).astype(np.int64) if len(num_words) else np.zeros(0, np.int64)
    )


def _broken_sentences(label_W: np.ndarray, num_words: Sequence[int], rules: TagRules) -> np.ndarray:
    """Which sentences hold a tag that is not allowed at its position."""
    sentence_W = np.repeat(np.arange(len(num_words)), num_words)
    within_W = sentence_W[1:] == sentence_W[:-1]
    fine_W = np.ones(len(label_W) + 1, bool)
    fine_W[1:-1] = rules.follows_KK[label_W[:-1], label_W[1:]] | ~within_W
    broken_S = np.zeros(len(num_words), bool)
    broken_S[sentence_W[~fine_W[:-1]]] = True
    filled = np.flatnonzero(np.asarray(num_words))
    starts = _starts(num_words)[filled]
    ends = starts + np.asarray(num_words)[filled] - 1
    broken_S[filled] |= ~rules.begins_K[label_W[starts]] | ~rules.ends_K[label_W[ends]]
    return broken_S


def _viterbi(logits_WK: np.ndarray, starts_S: np.ndarray, counts_S: np.ndarray, rules: TagRules) -> np.ndarray:
    """The best allowed sequences of sentences that lie among others, the longest first. All take a step together, the
    longest for longest; no loop goes over the words of one sentence. It says nothing about words of other sentences."""
    forbidden_KK = np.where(rules.follows_KK, 0.0, -np.inf)
    best_SK = logits_WK[starts_S] + np.where(rules.begins_K, 0.0, -np.inf)
    before_WK = np.zeros(logits_WK.shape, np.int64)
    for word in range(1, int(counts_S[0])):
        at = starts_S[: int((counts_S > word).sum())] + word
        reach_SKK = best_SK[: len(at), :, None] + forbidden_KK
        before_WK[at] = reach_SKK.argmax(axis=1)
        best_SK[: len(at)] = reach_SKK.max(axis=1) + logits_WK[at]
    label_W = np.zeros(len(logits_WK), np.int64)
    label_W[starts_S + counts_S - 1] = (best_SK + np.where(rules.ends_K, 0.0, -np.inf)).argmax(axis=1)
    for word in range(int(counts_S[0]) - 1, 0, -1):
        at = starts_S[: int((counts_S > word).sum())] + word
        label_W[at - 1] = before_WK[at, label_W[at]]
    return label_W


def _probabilities(logits_WK: np.ndarray) -> np.ndarray:
    """Of each label by itself. None is zero, so that some allowed sequence always is possible."""
    prob_WK = np.exp(logits_WK - logits_WK.max(axis=1, keepdims=True), dtype=np.float64) + 1e-300
    return prob_WK / prob_WK.sum(axis=1, keepdims=True)


def _forward(prob_WK: np.ndarray, num_words: Sequence[int], rules: TagRules) -> tuple[np.ndarray, np.ndarray]:
    """Of each word and label the probability of the words up to here, scaled to sum to 1, and the scale. All sentences
    take a step together."""
    starts_S, counts_S = _longest_first(num_words)
    follows_KK = rules.follows_KK.astype(np.float64)
    forward_WK, scale_W = np.zeros_like(prob_WK), np.ones(len(prob_WK))
    for word in range(int(counts_S.max(initial=0))):
        at = starts_S[: int((counts_S > word).sum())] + word
        into_SK = rules.begins_K if word == 0 else forward_WK[at - 1] @ follows_KK
        here_SK = into_SK * prob_WK[at]
        if (ending := counts_S[: len(at)] == word + 1).any():
            here_SK[ending] *= rules.ends_K
        scale_W[at] = here_SK.sum(axis=1)
        forward_WK[at] = here_SK / scale_W[at, None]
    return forward_WK, scale_W


def _backward(prob_WK: np.ndarray, scale_W: np.ndarray, num_words: Sequence[int], rules: TagRules) -> np.ndarray:
    """What is to come after each word and label, scaled so that it and the forward pass multiply to the probability of
    the label."""
    starts_S, counts_S = _longest_first(num_words)
    back_KK = rules.follows_KK.T.astype(np.float64)
    backward_WK = np.zeros_like(prob_WK)
    for word in range(int(counts_S.max(initial=0)) - 1, -1, -1):
        num_open = int((counts_S > word).sum())
        at = starts_S[:num_open] + word
        ending = counts_S[:num_open] == word + 1
        backward_WK[at[ending]] = rules.ends_K
        going = at[~ending]
        backward_WK[going] = (prob_WK[going + 1] * backward_WK[going + 1] / scale_W[going + 1, None]) @ back_KK
    return backward_WK


def _longest_first(num_words: Sequence[int], chosen: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Where the chosen sentences begin, all of them if none are named, and how many words they have."""
    counts_S = np.asarray(num_words, np.int64)
    starts_S = _starts(num_words)
    if chosen is not None:
        counts_S, starts_S = counts_S[chosen], starts_S[chosen]
    order = np.argsort(-counts_S, kind="stable")
    return starts_S[order], counts_S[order]
