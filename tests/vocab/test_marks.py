"""A vocabulary shows where words start by the mark that most of its tokens have."""

import pytest

from data_pipelines.vocab.marks import BYTE_LEVEL, INSIDE, SENTENCEPIECE, token_bytes, word_mark


@pytest.mark.parametrize(
    ("tokens", "mark"),
    [
        (["play", "##ing", "##ed"], INSIDE),
        (["Ġplay", "ing", "Ġthe", "####"], BYTE_LEVEL),
        (["▁play", "ing", "▁the"], SENTENCEPIECE),
        (["play", "ing", "##", "Ġ", "▁"], None),
    ],
)
def test_what_most_tokens_show_is_the_mark(tokens, mark):
    assert word_mark({token: index for index, token in enumerate(tokens)}) == mark


@pytest.mark.parametrize("text", ["a b", "été", "中文", "\n\t\x00"])
def test_a_byte_level_token_stands_for_its_bytes(text):
    tokenizers = pytest.importorskip("tokenizers")
    written = "".join(
        part for part, _ in tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text)
    )
    assert token_bytes(written) == text.encode()
