"""Words are compared without case and punctuation, and n-grams by hashes that depend on every word and its place."""

import numpy as np

from data_pipelines.clean.words import ngram_hashes, word_hashes, words_of


def test_case_punctuation_and_spaces_do_not_count():
    assert words_of("The  cat's\tHAT,\nand_42!") == ["the", "cat", "s", "hat", "and", "42"]


def test_ideographs_and_kana_are_words_of_their_own():
    assert words_of("我爱 NLP。すし") == ["我", "爱", "nlp", "す", "し"]


def test_an_ngram_depends_on_its_words_and_their_order():
    hashes = ngram_hashes(word_hashes(["a", "b", "c", "a", "b", "b", "a"]), 2)
    assert len(hashes) == 6
    assert hashes[0] == hashes[3]  # a b
    assert len(np.unique(hashes)) == 5
    assert len(ngram_hashes(word_hashes(["a"]), 2)) == 0
