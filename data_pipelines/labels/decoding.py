"""Scores of every word become the most probable tags that a scheme allows, with probabilities under the same rules.

A tagger scores every word by itself, so its best tags may put an I-PER after an O. Here the tags of a sentence are
chosen together: among the sequences that the scheme allows, the one with the highest product of probabilities
(Viterbi). Where the best tag of each word is allowed already, that is the answer, so only the others are searched.
"""

# W words over all sentences, S sentences, K labels

from collections.abc import Sequence
from itertools import pairwise
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
    label_W, count_S = logits_WK.argmax(axis=1), np.asarray(num_words, np.int64)
    broken_S = _broken_sentences(label_W, count_S, rules)
    if broken_S.any():
        broken_W = np.repeat(broken_S, count_S)
        label_W[broken_W] = _viterbi(logits_WK[broken_W], count_S[broken_S], rules)
    return label_W


def span_probabilities(
    logits_WK: np.ndarray, num_words: Sequence[int], label_W: np.ndarray, rules: TagRules
) -> tuple[np.ndarray, list[dict[tuple[int, int], float]]]:
    """The probability of each word's label, and of each sentence's spans as a whole, by (start, end): the summed
    probability of all allowed sequences that have just this span there, divided by that of all allowed sequences."""
    count_S = np.asarray(num_words, np.int64)
    chart = _make_chart(_probabilities(logits_WK), count_S, rules)
    word_W = np.arange(len(label_W))
    confidence_W = chart.forward_WK[word_W, label_W] * chart.coming_WK[word_W, label_W] / chart.total_W
    # Rounding may add a last digit to a probability of 1.
    return np.minimum(confidence_W, 1.0), _spans_with_probability(chart, count_S, label_W, rules)


def log_likelihood(
    logits_WK: np.ndarray, num_words: Sequence[int], label_W: np.ndarray, rules: TagRules | None
) -> np.ndarray:
    """Of each sentence the logarithm of the probability of these labels, all allowed, among all sequences that the
    rules allow."""
    count_S = np.asarray(num_words, np.int64)
    prob_WK = _probabilities(logits_WK)
    log_W = np.log(prob_WK[np.arange(len(label_W)), label_W])
    if rules is not None:
        order = _side_by_side(count_S).one_way()
        (into_WK,) = _reach(prob_WK, order, [rules.begins_K], [rules.follows_KK])
        forward_WK = into_WK * prob_WK
        scale_W = forward_WK.sum(axis=1)
        last = (np.cumsum(count_S) - 1)[count_S > 0]
        scale_W[last] = forward_WK[last] @ rules.ends_K
        log_W -= np.log(scale_W)
    return np.bincount(np.repeat(np.arange(len(count_S)), count_S), log_W, minlength=len(count_S))


class _Chart(NamedTuple):
    """The probabilities of all words, and the two passes over them. Both are scaled at every word, each for itself."""

    prob_WK: np.ndarray
    forward_WK: np.ndarray
    """Of all allowed beginnings up to a word the share that ends with this label."""
    scale_W: np.ndarray
    """The probability of a word's labels that the words before allow."""
    backward_WK: np.ndarray
    """Of all allowed ends from a word on the share that begins with this label."""
    coming_WK: np.ndarray
    """The share of the ends from the next word on that may follow this label."""
    total_W: np.ndarray
    """The share of beginnings up to a word and ends after it that fit together."""


def _make_chart(prob_WK: np.ndarray, count_S: np.ndarray, rules: TagRules) -> _Chart:
    ends, moves = [rules.begins_K, rules.ends_K], [rules.follows_KK, rules.follows_KK.T]
    into_WK, coming_WK = _reach(prob_WK, _side_by_side(count_S), ends, moves)
    forward_WK, backward_WK = into_WK * prob_WK, coming_WK * prob_WK
    scale_W = forward_WK.sum(axis=1)
    forward_WK /= scale_W[:, None]
    backward_WK /= backward_WK.sum(axis=1, keepdims=True)
    total_W = np.einsum("wk,wk->w", forward_WK, coming_WK)
    return _Chart(prob_WK, forward_WK, scale_W, backward_WK, coming_WK, total_W)


def _spans_with_probability(
    chart: _Chart, count_S: np.ndarray, label_W: np.ndarray, rules: TagRules
) -> list[dict[tuple[int, int], float]]:
    """A span is opened without continuing what was before, continued word by word, and not continued after its end.
    All spans of all sentences are computed at once."""
    prob_WK, forward_WK, scale_W, backward_WK, _, total_W = chart
    apart_KK = rules.follows_KK & ~rules.continues_KK
    # IOB1 opens the same span by B- after one of its kind and by I- elsewhere; both are continued alike.
    alike_KK = (rules.continues_KK[:, None] == rules.continues_KK).all(axis=2)
    alike_KK &= rules.kind_K[:, None] == rules.kind_K
    sentence_W = np.repeat(np.arange(len(count_S)), count_S)
    begin_S = np.cumsum(count_S) - count_S
    inside_W = np.zeros(len(label_W) + 1, bool)
    inside_W[1:-1] = rules.continues_KK[label_W[:-1], label_W[1:]] & (sentence_W[1:] == sentence_W[:-1])
    within_W = rules.spans_K[label_W]
    # P spans: their first words, their last ones, and then whether words of the same sentence surround them.
    first_P, last_P = np.flatnonzero(within_W & ~inside_W[:-1]), np.flatnonzero(within_W & ~inside_W[1:])
    sentence_P = sentence_W[first_P]
    begin_P = begin_S[sentence_P]
    led_P, followed_P = first_P > begin_P, last_P + 1 < begin_P + count_S[sentence_P]
    into_PK = np.tile(rules.begins_K.astype(np.float64), (len(first_P), 1))
    into_PK[led_P] = forward_WK[first_P[led_P] - 1] @ apart_KK
    chance_P = (into_PK * prob_WK[first_P] * alike_KK[label_W[first_P]]).sum(axis=1) / scale_W[first_P]
    further_W = np.flatnonzero(inside_W[:-1] & within_W)
    of_span_W = np.searchsorted(first_P, further_W, side="right") - 1
    log_W = np.log(prob_WK[further_W, label_W[further_W]] / scale_W[further_W])
    chance_P *= np.exp(np.bincount(of_span_W, log_W, minlength=len(first_P)))
    out_P = rules.ends_K[label_W[last_P]].astype(np.float64)
    after_P = last_P[followed_P] + 1
    out_P[followed_P] = (apart_KK[label_W[after_P - 1]] * backward_WK[after_P]).sum(axis=1)
    chance_P *= out_P / total_W[last_P]
    spans_S: list[dict[tuple[int, int], float]] = [{} for _ in count_S]
    places = zip((first_P - begin_P).tolist(), (last_P + 1 - begin_P).tolist(), strict=True)
    for sentence, place, chance in zip(sentence_P.tolist(), places, np.minimum(chance_P, 1.0).tolist(), strict=True):
        spans_S[sentence][place] = chance
    return spans_S


def _continues(before: tuple[str, str], here: tuple[str, str]) -> bool:
    return before[0] in "BI" and here[0] in "IE" and before[1] == here[1]


def _broken_sentences(label_W: np.ndarray, count_S: np.ndarray, rules: TagRules) -> np.ndarray:
    """Which sentences hold a tag that is not allowed at its position."""
    sentence_W = np.repeat(np.arange(len(count_S)), count_S)
    within_W = sentence_W[1:] == sentence_W[:-1]
    broken_S = np.zeros(len(count_S), bool)
    broken_S[sentence_W[1:][within_W & ~rules.follows_KK[label_W[:-1], label_W[1:]]]] = True
    filled = np.flatnonzero(count_S)
    last = np.cumsum(count_S)[filled] - 1
    broken_S[filled] |= ~rules.begins_K[label_W[last + 1 - count_S[filled]]] | ~rules.ends_K[label_W[last]]
    return broken_S


def _viterbi(logits_WK: np.ndarray, count_S: np.ndarray, rules: TagRules) -> np.ndarray:
    """The best allowed sequences of sentences, none empty. All take a step together; no loop goes over the words of one
    sentence. Which label led to the best score is asked only on the way back, of one label a word."""
    (word_W, _), borders = _side_by_side(count_S)
    barred_KK = np.where(rules.follows_KK, 0.0, -np.inf)
    barred_from_KK = np.ascontiguousarray(barred_KK.T)
    best_WK = logits_WK[word_W].astype(np.float64)
    best_WK[: borders[1]] += np.where(rules.begins_K, 0.0, -np.inf)
    steps = list(zip(borders, borders[1:], borders[2:], strict=False))
    for before, here, end in steps:
        best_SK = best_WK[before : before + end - here]
        best_WK[here:end] += (best_SK.T[:, :, None] + barred_KK[:, None, :]).max(axis=0)
    label_W = (best_WK + np.where(rules.ends_K, 0.0, -np.inf)).argmax(axis=1)  # what holds for last words
    for before, here, end in reversed(steps):
        led_S = slice(before, before + end - here)
        label_W[led_S] = (best_WK[led_S] + barred_from_KK[label_W[here:end]]).argmax(axis=1)
    found_W = np.empty_like(label_W)
    found_W[word_W] = label_W
    return found_W


def _probabilities(logits_WK: np.ndarray) -> np.ndarray:
    """Of each label by itself. None is zero, so that some allowed sequence always is possible."""
    prob_WK = np.exp(logits_WK - logits_WK.max(axis=1, keepdims=True), dtype=np.float64) + 1e-100
    return prob_WK / prob_WK.sum(axis=1, keepdims=True)


class _Order(NamedTuple):
    """How a loop over positions meets the words: the first words of all sentences, the longest ones in front, then the
    second words of those that have one."""

    word_DW: np.ndarray
    """The words in this order, counted from the first of each sentence and, in the second row, from the last."""
    borders: list[int]
    """Where each position begins, and the end."""

    def one_way(self) -> "_Order":
        return self._replace(word_DW=self.word_DW[:1])


def _reach(prob_WK: np.ndarray, order: _Order, starts: Sequence[np.ndarray], moves: Sequence[np.ndarray]) -> np.ndarray:
    """For each direction, word and label: of what may stand before the word in that direction, the share that the label
    may follow. All sentences and directions take a step together."""
    prob_DWK = prob_WK[order.word_DW]
    reach_DWK, moves_DKK = np.empty_like(prob_DWK), np.stack(moves).astype(np.float64)
    share_DSK = np.stack(starts)[:, None].astype(np.float64)
    for here, end in pairwise(order.borders):
        if here:
            share_DSK = share_DSK[:, : end - here] @ moves_DKK
        reach_DWK[:, here:end] = share_DSK
        share_DSK = share_DSK * prob_DWK[:, here:end]
        share_DSK /= share_DSK.sum(axis=2, keepdims=True)
    found_DWK = np.empty_like(reach_DWK)
    for found_WK, word_W, reach_WK in zip(found_DWK, order.word_DW, reach_DWK, strict=True):
        found_WK[word_W] = reach_WK
    return found_DWK


def _side_by_side(count_S: np.ndarray) -> _Order:
    begin_S = np.cumsum(count_S) - count_S
    order_S = np.argsort(-count_S, kind="stable")
    ascending_S = count_S[order_S[::-1]]
    position_T = np.arange(count_S.max(initial=0))
    num_T = len(count_S) - np.searchsorted(ascending_S, position_T, side="right")
    borders_T = np.append(0, np.cumsum(num_T))
    position_W = np.repeat(position_T, num_T)
    sentence_W = order_S[np.arange(len(position_W)) - np.repeat(borders_T[:-1], num_T)]
    first_W, last_W = begin_S[sentence_W], (begin_S + count_S - 1)[sentence_W]
    return _Order(np.stack([first_W + position_W, last_W - position_W]), borders_T.tolist())
