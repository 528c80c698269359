"""Text without spaces is split as the training words were: what was learned is found again in new sentences."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines.labels.segmenter import LearnedSegmenter, learn_segmenter
from data_pipelines.labels.word_splitting import SplitRule, WordSplitter, learn_rule, looks_unsplit

NOUNS = {
    "zh": ["老师", "学生", "图书馆", "城市", "河", "天气", "研究", "研究生"],
    "ja": ["せんせい", "学生", "としょかん", "まち", "川", "てんき", "テスト"],
    "th": ["ครู", "นักเรียน", "ห้องสมุด", "เมือง", "แม่น้ำ", "อากาศ"],
}
VERBS = {"zh": ["喜欢", "看", "记得"], "ja": ["すき", "みる", "おぼえる"], "th": ["ชอบ", "ดู", "จำได้"]}


def sentences(language: str, count: int, seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    nouns, verbs = NOUNS[language], VERBS[language]
    return [[draw.choice(nouns), draw.choice(verbs), draw.choice(nouns), "。"] for _ in range(count)]


@pytest.fixture(scope="module")
def learned() -> LearnedSegmenter:
    return learn_segmenter(sentences("zh", 200, 0))


@pytest.mark.parametrize("language", NOUNS)
def test_words_are_found_in_sentences_that_were_never_seen(language):
    splitter = WordSplitter(learn_rule((words, None) for words in sentences(language, 200, 0)))
    new = sentences(language, 50, 1)
    right = [splitter.words("".join(words)) == words for words in new]
    assert sum(right) >= 48


@given(st.text(alphabet="研究生老师图 a1。\u0e01\U00020000", max_size=30))
def test_the_words_are_the_text(learned, text):
    words = learned(text)
    assert "".join(words) == text
    assert all(words)


def test_a_segmenter_survives_a_file_and_learning_is_deterministic(learned):
    read = LearnedSegmenter.from_json(json.loads(json.dumps(learned.to_json())))
    assert read.to_json() == learned.to_json() == learn_segmenter(sentences("zh", 200, 0)).to_json()
    text = "".join(word for words in sentences("zh", 5, 2) for word in words)
    assert read(text) == learned(text)


@pytest.mark.parametrize(
    ("words", "text", "learns"),
    [
        (["研究", "生活", "的", "人"], None, True),
        (["研究", "生活", "的", "人"], "研究生活的人", True),
        (["研究", "生活", "的", "人"], "研究 生活 的 人", False),  # the text itself has spaces
        (["go", "to", "the", "station"], None, False),
        (["go", "to", "the", "station"], "gotothestation", True),  # whatever the script
        (["我", "爱", "deep", "learning"], None, True),
    ],
)
def test_a_segmenter_is_learned_where_words_stand_without_spaces(words, text, learns):
    rule = learn_rule([(words, text)] * 20)
    assert (rule.segmenter is not None) == learns
    assert SplitRule.from_json(json.loads(json.dumps(rule.to_json()))) == rule
    assert ("segmenter" in rule.to_json()) == learns


def test_spaces_still_separate_words(learned):
    rule = SplitRule(segmenter=learned.to_json())
    assert WordSplitter(rule).places("老师 学生\n") == [(0, 2), (3, 5)]


def test_a_named_segmenter_splits_what_no_space_splits():
    splitter = WordSplitter(SplitRule(segmenter="halves"), lambda text: [text[:2], text[2:]])
    assert splitter.words("老师看 学生们") == ["老师", "看", "学生", "们"]


@pytest.mark.parametrize(
    ("text", "unsplit"), [("我们今天去图书馆看书", True), ("我们 今天 去 图书馆", False), ("Donaudampfschiff", False)]
)
def test_a_sentence_taken_for_a_word_is_noticed(text, unsplit):
    assert looks_unsplit(text, len(WordSplitter(SplitRule(punctuation=False)).words(text))) == unsplit


def test_letters_and_digits_that_training_never_had_are_not_torn_apart():
    segment = learn_segmenter([["我", "喜歡", "北京"], ["老師", "去", "北京"], ["我", "去", "上海"]] * 4)
    assert "hello" in segment("我喜歡hello北京")
    assert segment("hello。2026") == ["hello", "。", "2026"]
    mixed = learn_segmenter([["卡拉OK", "去"], ["我", "卡拉OK"]] * 8)
    assert mixed("我去卡拉OK")[-1] == "卡拉OK"  # what training has decides
