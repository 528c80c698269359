"""Near copies are found whatever words were changed, and what is different stays."""

import random

import numpy as np
import pytest

from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.near import NUM_HASHES, ROWS_OF_BAND, find_copies, signature
from data_pipelines.clean.words import word_hashes

WORDS = [f"w{number}" for number in range(3000)]


def text(generator, length=200):
    return generator.choices(WORDS, k=length)


def changed(words, share, generator):
    return [generator.choice(WORDS) if generator.random() < share else word for word in words]


def signatures(texts, ngram=1):
    return np.stack([signature(word_hashes(" ".join(words)), ngram) for words in texts])


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
def test_copies_with_changed_words_are_found_and_nothing_else(share, tmp_path):
    generator = random.Random(1)
    originals = [text(generator) for _ in range(300)]
    copies = [changed(words, share, generator) for words in originals]
    usual = CleanConfig()
    found = find_copies(signatures([*originals, *copies], usual.near_ngram), usual.near_threshold, tmp_path)
    assert (found[:300] == -1).all()
    assert (found[300:] == np.arange(300)).mean() >= 0.95


def test_a_signature_estimates_the_share_of_common_ngrams():
    generator = random.Random(2)
    first = text(generator, 400)
    second = first[:200] + text(generator, 200)
    for ngram in (1, 2):
        sets = [{tuple(words[at : at + ngram]) for at in range(len(words) - ngram + 1)} for words in (first, second)]
        exact = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        one, other = signatures([first, second], ngram)
        assert (one == other).mean() == pytest.approx(exact, abs=0.12)


def test_a_copy_is_found_behind_an_unrelated_text_that_shares_its_band(tmp_path):
    """The first text with a band is not the only one that the others are compared with."""
    rows = np.arange(3 * NUM_HASHES, dtype=np.uint32).reshape(3, NUM_HASHES)
    rows[2] = rows[1]
    rows[:, :ROWS_OF_BAND] = 7
    rows[2, ROWS_OF_BAND::2] = 0  # no other whole band of the second is left
    rows[2, ROWS_OF_BAND + 1 :: 4] = 1
    assert find_copies(rows, 0.2, tmp_path).tolist() == [-1, -1, 1]


def test_what_repeats_a_copy_but_not_its_original_stays(tmp_path):
    generator = random.Random(3)
    first = text(generator, 400)
    second = first[:300] + text(generator, 100)
    third = second[100:] + text(generator, 100)
    assert find_copies(signatures([first, second, third]), 0.5, tmp_path).tolist() == [-1, 0, -1]


@pytest.mark.parametrize("texts", [[], [[]], [["a"]], [["a"], ["b"], []]])
def test_few_and_short_texts_are_no_copies(texts, tmp_path):
    rows = signatures(texts) if texts else np.zeros((0, 120), np.uint32)
    assert find_copies(rows, 0.5, tmp_path).tolist() == [-1] * len(texts)
