"""Kneser-Ney: probabilities sum to one after every context, and hand-computed ones come out."""

import itertools
import math

import numpy as np
import pytest

from bertkit.evaluate.ngram import NGram

BORDER = 0
TEXT = np.array([BORDER, 1, 2, 3, 1, 2, 4, BORDER, 2, 3, 3, 1, BORDER, 4, 1, 2])


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_what_may_follow_a_context_has_probability_one_in_all(order):
    model = NGram(TEXT, 6, order, [BORDER])
    for context in [(), *itertools.product(range(6), repeat=2), (1, 2, 3), (5, 5, 5)]:
        before = float(model.log_probs([context])[0]) if context else 0.0
        following = np.exp(model.log_probs([(*context, token) for token in range(6)]) - before)
        assert following.sum() == pytest.approx(1)
        assert following.min() > 0


def test_bigrams_by_hand():
    # Of the bigrams two were seen once (2 3, 3 1) and one twice (1 2): the discount is 2 / (2 + 2 * 1).
    model = NGram(np.array([1, 2, 3, 1, 2]), 4, 2)
    # Each of three tokens ends one of the three bigrams; none ends two, so the discount is the default, 1/2.
    unigram = (1 - 0.5 + 0.5 * 3 / 4) / 3
    bigram = (2 - 0.5 + 0.5 * 1 * unigram) / 2
    first = (1 - 0.5 + 0.5 * 3 / 4) / 3
    assert model.log_probs([(1, 2)])[0] == pytest.approx(math.log(first) + math.log(bigram))
    assert model.log_probs([(2,), (), (1, 2)])[[0, 1]] == pytest.approx([math.log(unigram), 0.0])


def test_sentences_and_borders_do_not_touch():
    model = NGram(TEXT, 6, 2, [BORDER])
    alone = [float(model.log_probs([sentence])[0]) for sentence in ((1, 2), (3, 1, 2), (4,))]
    assert model.log_probs([(1, 2), (3, 1, 2), (4,)]) == pytest.approx(alone)
    # 4 and then 2 stand side by side only across a border, so 2 is no likelier after 4 than after what never was.
    after = np.exp(model.log_probs([(4, 2), (5, 2)]) - model.log_probs([(4,), (5,)]))
    assert after[0] < after[1]


def test_more_context_makes_seen_text_likelier():
    text = np.tile([1, 2, 3, 2, 1, 4], 20)
    sentence = [(1, 2, 3, 2, 1, 4)]
    likely = [float(NGram(text, 6, order).log_probs(sentence)[0]) for order in (1, 2, 3)]
    assert likely == sorted(likely)
