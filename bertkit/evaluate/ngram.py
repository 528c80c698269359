"""An n-gram model with interpolated Kneser-Ney smoothing: token ids enter, log-probabilities of sentences leave.

What a model that only counts can say of a sentence: the least that an encoder trained on the same rows should beat.
"""

# T tokens of the training text or of all sentences, G distinct n-grams of one order, C their contexts, V vocabulary

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from data_pipelines.rows.shards import Rows

MOST_TOKENS = 10_000_000
"""Tokens to count at most; from a larger text, rows are taken evenly."""


class _Order(NamedTuple):
    """The n-grams of one length. An n-gram is found by its key: number of its context × vocabulary + last token."""

    keys_G: np.ndarray
    """Sorted; the place of a key is the number of its n-gram."""
    counts_G: np.ndarray
    """How often it was seen; below the highest order after how many different tokens (Kneser-Ney)."""
    totals_C: np.ndarray
    """Sum of the counts after each context."""
    types_C: np.ndarray
    """How many different tokens were seen after each context."""
    discount: float


class _Seen(NamedTuple):
    """The n-grams of one length in the training text."""

    keys_G: np.ndarray
    counts_G: np.ndarray
    first_G: np.ndarray
    """Where each ends for the first time."""
    number_T: np.ndarray
    """Which one ends at each token, -1 where none does."""
    num_contexts: int


class NGram:
    """Counts of token ids up to `order` tokens long; `borders` are ids that no n-gram contains or crosses."""

    def __init__(self, ids_T: np.ndarray, vocab_size: int, order: int, borders: Sequence[int] = ()):
        self.vocab_size, self.num_tokens = vocab_size, len(ids_T)
        inside_T = ~np.isin(ids_T, list(borders))
        # The number of the n-gram that ends before each token; the empty one to begin with.
        context_T, num_contexts = np.zeros(len(ids_T), np.int64), 1
        seen: list[_Seen] = []
        for _ in range(order):
            known = np.flatnonzero(inside_T & (context_T >= 0))
            keys_G, first_G, number, counts_G = np.unique(
                context_T[known] * vocab_size + ids_T[known], return_index=True, return_inverse=True, return_counts=True
            )
            number_T = np.full(len(ids_T), -1)
            number_T[known] = number
            seen.append(_Seen(keys_G, counts_G, known[first_G], number_T, num_contexts))
            context_T, num_contexts = _before(number_T), max(len(keys_G), 1)
        # Below the highest order, each n-gram that is one token longer says of one more token that it stood before.
        for short, long in pairwise(seen):
            short.counts_G[:] = np.bincount(short.number_T[long.first_G], minlength=len(short.keys_G))
        self._orders = [_with_totals(grams, vocab_size) for grams in seen]

    @classmethod
    def of_rows(cls, rows: Rows, order: int, borders: Sequence[int]) -> "NGram":
        row_ids = np.arange(len(rows))
        if rows.num_tokens > MOST_TOKENS:
            row_ids = row_ids[:: -(-rows.num_tokens // MOST_TOKENS)]
        return cls(rows.gather(row_ids).ids_T, rows.vocab_size, order, borders)

    def log_probs(self, sentences: Sequence[Sequence[int]]) -> np.ndarray:
        """The log-probability of each sentence, in nats; its first token has nothing before it."""
        lengths = np.array([len(sentence) for sentence in sentences])
        ids_T = np.concatenate([np.asarray(sentence, np.int64) for sentence in sentences])
        starts = np.cumsum(lengths) - lengths
        log_prob_T = self.token_log_probs(ids_T, starts[lengths > 0])
        return np.add.reduceat(np.append(log_prob_T, 0.0), starts) * (lengths > 0)

    def token_log_probs(self, ids_T: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """(T,) the log-probability of each token after those before it; before the tokens at `starts` there is none."""
        probability_T = np.full(len(ids_T), 1 / self.vocab_size)
        context_T = np.zeros(len(ids_T), np.int64)
        for order in self._orders:
            number_T = _find(order.keys_G, np.where(context_T >= 0, context_T * self.vocab_size + ids_T, -1))
            total_T = np.where(context_T >= 0, order.totals_C[context_T], 0)
            count_T = np.where(number_T >= 0, order.counts_G[number_T], 0)
            left_over_T = order.discount * order.types_C[context_T] * probability_T
            counted_T = (np.maximum(count_T - order.discount, 0) + left_over_T) / np.maximum(total_T, 1)
            probability_T = np.where(total_T > 0, counted_T, probability_T)
            context_T = _before(number_T)
            context_T[starts] = -1
        return np.log(probability_T)


def _before(number_T: np.ndarray) -> np.ndarray:
    """What ends before each token, from what ends with it."""
    return np.concatenate([[-1], number_T])[: len(number_T)]


def _with_totals(grams: "_Seen", vocab_size: int) -> "_Order":
    context_G, seen_G = grams.keys_G // vocab_size, grams.counts_G > 0
    once, twice = (int((grams.counts_G == number).sum()) for number in (1, 2))
    return _Order(
        grams.keys_G,
        grams.counts_G,
        np.bincount(context_G, grams.counts_G, minlength=grams.num_contexts),
        np.bincount(context_G[seen_G], minlength=grams.num_contexts),
        once / (once + 2 * twice) if once and twice else 0.5,
    )


def _find(keys_G: np.ndarray, keys_T: np.ndarray) -> np.ndarray:
    """The place of each key, -1 where it is not there."""
    place_T = np.minimum(np.searchsorted(keys_G, keys_T), max(len(keys_G) - 1, 0))
    return np.where(keys_G[place_T] == keys_T, place_T, -1) if len(keys_G) else np.full(len(keys_T), -1)
