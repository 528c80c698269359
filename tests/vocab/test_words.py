"""Where words start: told by the vocabulary, by the tokenizer or by a segmenter."""

import argparse
import collections
import decimal
import email.message
import inspect
import json
import logging
import re
import statistics
import subprocess
import textwrap

import numpy as np
import pytest
from grammar import documents
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer
from data_pipelines.vocab.words import (
    ideograph_starts,
    jieba_segmenter,
    starts_from_segments,
    starts_from_word_ids,
    word_table,
)

SENTENCES = ["Hello, world! It's 3.14 -- don't ####", "naïve café\n\nnew line", "x=f(y)+2;", "tabs\tand  spaces"]


@pytest.fixture(scope="module", params=["wordpiece", "bpe"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "corpus.txt").write_text("\n\n".join(documents(200) + SENTENCES * 5 + ["# ## ### #### a##b"] * 5))
    corpus = CorpusConfig(corpus=[str(folder / "corpus.txt")])
    return train_tokenizer(corpus, TokenizerConfig(kind=request.param, vocab_size=400), folder / "tokenizer")


def test_word_ids_start_a_word_where_they_change():
    starts = starts_from_word_ids([None, 0, 0, 1, 2, 2, None, None, 2])
    assert starts.tolist() == [True, True, False, True, True, False, True, True, True]
    assert starts_from_word_ids([-1, 0, 0, -1, -1]).tolist() == [True, True, False, True, True]
    assert len(starts_from_word_ids([])) == 0


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=100)
def test_the_table_of_a_wordpiece_vocabulary_is_exact(wordpiece, text):
    encoding = wordpiece.backend.encode(text, add_special_tokens=False)
    table = word_table(wordpiece.backend.get_vocab(), wordpiece.vocab_size)
    expected = starts_from_word_ids(encoding.word_ids)
    assert np.array_equal(table.starts(np.array(encoding.ids, np.int64)), expected)


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wordpiece")
    (folder / "corpus.txt").write_text("\n\n".join(documents(100) + SENTENCES))
    config = TokenizerConfig(vocab_size=300)
    return train_tokenizer(CorpusConfig(corpus=[str(folder / "corpus.txt")]), config, folder / "tokenizer")


def test_the_table_finds_the_words_of_plain_sentences(tokenizer):
    table = word_table(tokenizer.backend.get_vocab(), tokenizer.vocab_size)
    for text in [*documents(20, seed=1), "Hello, world! x=f(y)+2;"]:
        encoding = tokenizer.backend.encode(text, add_special_tokens=False)
        assert np.array_equal(table.starts(np.array(encoding.ids)), starts_from_word_ids(encoding.word_ids)), text


@pytest.mark.parametrize("text", ["I don't know, it's. \"She'll!\" we've...", "he'd 'em. they're, I'm; 's's"])
def test_contractions_of_a_byte_level_vocabulary_are_words_of_their_own(tmp_path, text):
    (tmp_path / "corpus.txt").write_text(f"{text}\n\n" * 5 + "it's don't she'll we've he'd they're I'm\n" * 5)
    corpus = CorpusConfig(corpus=[str(tmp_path / "corpus.txt")])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(kind="bpe", vocab_size=500), tmp_path / "tokenizer")
    encoding = tokenizer.backend.encode(text, add_special_tokens=False)
    starts = word_table(tokenizer.backend.get_vocab(), tokenizer.vocab_size).starts(np.array(encoding.ids))
    assert np.array_equal(starts, starts_from_word_ids(encoding.word_ids)), encoding.tokens


def test_a_byte_level_vocabulary_with_number_signs_is_no_wordpiece():
    tokens = ["Ġthe", "Ġhouse", "hou", "se", "##", "###", "####", ",", "Ġ", "Ġa"]
    table = word_table({token: i for i, token in enumerate(tokens)}, len(tokens))
    assert table.starts(np.array([0, 3, 6, 5, 1, 7])).tolist() == [True, False, True, False, True, True]
    assert table.starts(np.array([8, 2, 3, 8, 7])).tolist() == [True, False, False, True, False]


def test_a_sentencepiece_vocabulary_is_read_too():
    tokens = ["▁the", "▁hou", "se", ",", "▁"]
    table = word_table({token: i for i, token in enumerate(tokens)}, len(tokens))
    assert table.starts(np.array([0, 1, 2, 3])).tolist() == [True, True, False, True]


@pytest.mark.parametrize("vocab_size", [270, 400])
def test_chinese_in_bytes_is_not_one_giant_word(tmp_path, vocab_size):
    """Whether characters are tokens or are split into bytes; the tokenizer itself takes a clause for one word."""
    corpus = CorpusConfig(corpus=[str(tmp_path / "corpus.txt")])
    (tmp_path / "corpus.txt").write_text("我来到北京清华大学\n\n" * 5, encoding="utf-8")
    config = TokenizerConfig(kind="bpe", vocab_size=vocab_size)
    backend = train_tokenizer(corpus, config, tmp_path / "tokenizer").backend
    encoding = backend.encode("学我北中", add_special_tokens=False)  # an order not seen, so no token spans characters
    ids, vocabulary, size = np.array(encoding.ids), backend.get_vocab(), backend.get_vocab_size()
    assert starts_from_word_ids(encoding.word_ids).sum() == 1
    starts = word_table(vocabulary, size).starts(ids)
    assert [encoding.offsets[i] for i in np.flatnonzero(starts)] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert np.array_equal(ideograph_starts(vocabulary, size)[ids], starts)


def real_text() -> list[str]:
    """What the standard library says of itself."""
    modules = (argparse, collections, decimal, email.message, json, logging, re, statistics, subprocess, textwrap)
    members = [member for module in modules for member in (module, *vars(module).values())]
    return sorted({doc for member in members if len(doc := inspect.getdoc(member) or "") > 80})


def kind(char: str) -> str:
    return "letter" if char.isalpha() else "digit" if char.isnumeric() else "other"


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_words_of_a_metaspace_vocabulary_end_at_spaces_and_where_kinds_of_characters_meet(model):
    texts = [*documents(100), *real_text()]
    backend = Tokenizer(models.Unigram() if model == "unigram" else models.BPE())
    backend.normalizer = normalizers.Replace(Regex(r"\s+"), " ")  # as SentencePiece does
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer if model == "unigram" else trainers.BpeTrainer
    backend.train_from_iterator(texts, trainer(vocab_size=1500, special_tokens=["<unk>"], show_progress=False))
    table = word_table(backend.get_vocab(), backend.get_vocab_size())
    agreeing = by_word_ids = tokens = 0
    for text in texts:
        encoding = backend.encode(text)
        found, wanted = table.starts(np.array(encoding.ids)), starts_from_word_ids(encoding.word_ids)
        by_word_ids += (found == wanted).sum()
        for place, (start, _) in enumerate(encoding.offsets):
            if start and not text[start].isspace() and not text[start - 1].isspace():
                wanted[place] |= kind(text[start]) != kind(text[start - 1])
        agreeing += (found == wanted).sum()
        tokens += len(found)
    assert tokens > 20_000
    assert agreeing >= 0.995 * tokens
    assert by_word_ids >= 0.8 * tokens


def test_a_chinese_token_of_a_sentencepiece_vocabulary_is_a_word():
    tokens = ["▁the", "▁我", "来到", "北", "se", "。"]
    table = word_table({token: i for i, token in enumerate(tokens)}, len(tokens))
    assert table.starts(np.array([0, 4, 1, 2, 3, 4, 5])).tolist() == [True, False, True, True, True, True, True]


def test_a_vocabulary_that_shows_no_words_is_told():
    with pytest.raises(ValueError, match="`word_ids`"):
        word_table({"a": 0, "b": 1, "##": 2}, 3)


def test_segments_start_words_even_where_their_first_character_has_no_token():
    text = "\u200bab\u200bcd e"
    segments = ["\u200bab", "\u200bcd", " ", "e"]
    offsets = [(1, 2), (2, 3), (4, 5), (4, 5), (5, 6), (7, 8)]  # two pieces for one character
    assert starts_from_segments(text, offsets, lambda _: segments).tolist() == [True, False, True, False, False, True]
    assert len(starts_from_segments("", [], lambda _: [])) == 0


def test_a_segmenter_that_loses_text_is_told():
    with pytest.raises(ValueError, match="make up 2 characters of a text of 3"):
        starts_from_segments("abc", [(0, 1)], lambda text: ["a", "b"])


def test_jieba_makes_words_of_chinese_characters(tmp_path, capfd):
    pytest.importorskip("jieba")
    text = "我来到北京清华大学, hello world。"
    (tmp_path / "corpus.txt").write_text(text, encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(tmp_path / "corpus.txt")])
    backend = train_tokenizer(corpus, TokenizerConfig(vocab_size=200, min_frequency=1), tmp_path / "tokenizer").backend
    encoding = backend.encode(text, add_special_tokens=False)
    starts = starts_from_segments(text, encoding.offsets, jieba_segmenter())
    words = [
        "".join(encoding.tokens[begin:end])
        for begin, end in zip(np.flatnonzero(starts), [*np.flatnonzero(starts)[1:], len(starts)], strict=True)
    ]
    assert words[:4] == ["我", "来到", "北京", "清华大学"]
    assert "".join(jieba_segmenter()(text)) == text
    assert capfd.readouterr().err == ""
