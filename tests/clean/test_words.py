"""Words are compared without case and punctuation, and n-grams by hashes that depend on every word and its place."""

import re
import tracemalloc

import numpy as np
import pytest

from data_pipelines.clean import words
from data_pipelines.clean.words import ngram_hashes, text_hash, word_hashes, words_of


def test_case_punctuation_and_spaces_do_not_count():
    assert words_of("The  cat's\tHAT,\nand_42!") == ["the", "cat", "s", "hat", "and", "42"]


def test_a_text_in_ascii_has_the_words_of_one_that_is_not():
    every = "".join(f"{chr(code)}A{chr(code)}b " for code in range(128))
    assert words_of(every) == words_of(every + "\u2026")


def test_ideographs_and_kana_are_words_of_their_own():
    assert words_of("我爱 NLP。すし") == ["我", "爱", "nlp", "す", "し"]


@pytest.mark.parametrize(
    "others", ["", "\u2014", "\u2014\u00e9", "".join(map(chr, range(0x2190, 0x21C0))), "\ud800", "ﬁß"]
)
def test_words_are_the_same_however_they_are_found(others):
    """Texts with some dashes, with letters beyond ASCII and with many symbols are read in different ways."""
    text = "One two_THREE-4,\n" + " ".join(f"x{other}Y {other}" for other in others)
    assert words_of(text) == re.findall(r"[^\W_]+", text.casefold())


@pytest.mark.parametrize("at_once", [2, 7, 1 << 16])
def test_the_hash_of_a_word_is_that_of_no_other_and_does_not_depend_on_its_place(at_once, monkeypatch):
    monkeypatch.setattr(words, "_AT_ONCE", at_once)
    some = ["a", "b", "ab", "ba", "aa", "aaa", "é", "我", "word" * 50, "word" * 51, *map(str, range(500))]
    hashes_W = word_hashes("  ".join(some) + " ")
    assert hashes_W.tolist() == [word_hashes(word).item() for word in some]
    assert len(np.unique(hashes_W)) == len(some)
    assert len(word_hashes("")) == len(word_hashes(" ")) == 0


def test_a_long_word_takes_little_more_memory_than_its_letters():
    word = "ab" * 1_000_000
    tracemalloc.start()
    word_hashes(word)
    assert tracemalloc.get_traced_memory()[1] < 6 * len(word)
    tracemalloc.stop()


def test_an_ngram_depends_on_its_words_and_their_order():
    hashes = ngram_hashes(word_hashes("a b c a b b a"), 2)
    assert len(hashes) == 6
    assert hashes[0] == hashes[3]  # a b
    assert len(np.unique(hashes)) == 5
    assert len(ngram_hashes(word_hashes("a"), 2)) == 0


def test_the_hash_of_a_text_is_that_of_its_longest_ngram():
    hashes_W = word_hashes("a b a c")
    assert text_hash(hashes_W) == ngram_hashes(hashes_W, 4)[0]
    assert text_hash(hashes_W[:0]) == 0
