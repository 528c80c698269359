"""Raw text is split as the labeled data was, and every word keeps its place."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines.labels.word_splitting import SplitRule, WordSplitter, learn_rule, written_out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("at 3.50 or 10:30...", ["at", "3.50", "or", "10:30", "..."]),
        ("see http://a.b/c?d=e. Mail a.b@c.org", ["see", "http://a.b/c?d=e", ".", "Mail", "a.b@c.org"]),
        ("@anna likes #this", ["@anna", "likes", "#this"]),
        ("the U.S. army", ["the", "U.S.", "army"]),
        ("שלום, עולם", ["שלום", ",", "עולם"]),
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा", "।"]),
        ("我爱x", ["我", "爱", "x"]),
        ("hi👨‍👩‍👧👍🏽!", ["hi", "👨‍👩‍👧", "👍🏽", "!"]),
        ("a\u200bb \u200b", ["a\u200bb", "\u200b"]),
        ("", []),
        (" \t\n ", []),
    ],
)
def test_words_are_where_people_see_them(text, words):
    assert WordSplitter(SplitRule()).words(text) == words


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (SplitRule(punctuation=False), ["Don't", "well-known,"]),
        (SplitRule(), ["Don't", "well-known", ","]),
        (SplitRule(hyphens=True), ["Don't", "well", "-", "known", ","]),
        (SplitRule(clitics=True), ["Do", "n't", "well-known", ","]),
        (SplitRule(together=frozenset({"well-known,"})), ["Don't", "well-known,"]),
    ],
)
def test_a_rule_says_what_stays_together(rule, words):
    assert WordSplitter(rule).words("Don't well-known,") == words
    assert SplitRule.from_json(rule.to_json()) == rule


@given(st.text(max_size=60))
def test_nothing_but_whitespace_is_lost(text):
    splitter = WordSplitter(SplitRule(clitics=True, hyphens=True))
    places = splitter.places(text)
    assert all(start < end for start, end in places)
    assert all(before[1] <= after[0] for before, after in pairwise(places))
    assert "".join(splitter.words(text)) == "".join(text.split())
    assert splitter.places(text) == places


TREEBANK = [
    (["Do", "n't", "go", ",", "Mr.", "Well", "-", "known", "!"], "Don't go, Mr. Well-known!"),
    (["She", "'s", "in", "Mr.", "Fox", "'s", "half", "-", "open", "box", "."], "She's in Mr. Fox's half-open box."),
]


@pytest.mark.parametrize("known", [True, False])
def test_the_rule_is_learnt_from_the_data_with_and_without_its_text(known):
    sentences = [(words, text if known else None) for words, text in TREEBANK * 3]
    rule = learn_rule(sentences)
    assert rule.punctuation
    assert rule.clitics
    assert rule.hyphens or not known
    assert "Mr." in rule.together
    splitter = WordSplitter(rule)
    if known:
        assert all(splitter.words(text) == words for words, text in TREEBANK)


def test_data_split_at_spaces_alone_is_recognised():
    rule = learn_rule([(["Hello,", "world!", "It's", "half-open."], None)] * 3)
    assert rule == SplitRule(punctuation=False)


def test_words_are_written_out_as_people_write():
    assert written_out(["Do", "n't", "(", "ever", ")", "go", "!"]) == "Don't (ever) go!"
