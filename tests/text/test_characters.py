"""Everyone who splits Chinese splits it alike."""

import pytest

from data_pipelines.labels.word_splitting import SplitRule, WordSplitter
from data_pipelines.text.characters import is_ideograph
from data_pipelines.vocab.doctor import _WORD
from data_pipelines.vocab.words import ideograph_starts

CHINESE = ["\u3400", "\u4dbf", "\u4e00", "\u9fff", "\uf900", "\U00020000", "\U0002ceb0", "\U00031350", "\U000323af"]


@pytest.mark.parametrize("character", CHINESE)
def test_a_chinese_character_is_a_word_to_all(character):
    assert is_ideograph(character)
    assert WordSplitter(SplitRule()).words(character * 3) == [character] * 3
    assert _WORD.findall(character * 3) == [character] * 3
    assert ideograph_starts({"▁a": 0, character * 2: 1}, 2).tolist() == [False, True]


@pytest.mark.parametrize("text", ["abc", "가나다", "αβγ"])
def test_letters_of_scripts_with_spaces_are_one_word_to_all(text):
    assert not any(map(is_ideograph, text))
    assert WordSplitter(SplitRule()).words(text) == _WORD.findall(text) == [text]


def test_kana_are_split_as_text_but_are_no_ideographs():
    assert not is_ideograph("か")
    assert WordSplitter(SplitRule()).words("かな") == ["か", "な"]
