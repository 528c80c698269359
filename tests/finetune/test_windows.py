"""Every word is asked about exactly once, where it has most context, however long the sentence and odd the word."""

from dataclasses import replace

import numpy as np
import pytest
from grammar import write_corpus
from hypothesis import given
from hypothesis import strategies as st

from bertkit.finetune.batches import collate, hiding_tokens
from bertkit.finetune.windows import (
    Encoded,
    Row,
    RowForm,
    WordEncoder,
    by_length,
    text_rows,
    window_starts,
    word_rows,
)
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import SpecialIds, train_tokenizer


def form(max_length: int, **changes) -> RowForm:
    return RowForm(np.array([101]), np.array([102]), max_length, **changes)


def encoded(lengths) -> Encoded:
    """A sentence whose words have so many pieces; piece i has the id 1000 + i."""
    lengths = np.array(lengths, np.int64)
    return Encoded(
        1000 + np.arange(lengths.sum()), np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths) - lengths
    )


def rows_of(make_rows, form: RowForm, *sentences: Encoded) -> list[Row]:
    """The rows of sentences in subwords, whatever their words are."""
    return make_rows([Sentence(["?"], None, "", [])] * len(sentences), lambda words: sentences, form)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=80), st.integers(4, 40))
def test_every_word_is_answered_once_at_its_first_piece(lengths, max_length):
    sentence = encoded(lengths)
    rows = rows_of(word_rows, form(max_length), encoded([1]), sentence)[1:]
    answered = np.concatenate([row.word_M for row in rows])
    assert sorted(answered.tolist()) == list(range(len(lengths)))
    for row in rows:
        assert len(row.ids_L) <= max_length
        assert (row.ids_L[0], row.ids_L[-1], row.sentence) == (101, 102, 1)
        assert (row.ids_L[row.index_M] == 1000 + sentence.first_W[row.word_M]).all()
        assert (np.diff(row.index_M) > 0).all()


@given(st.integers(1, 500), st.integers(2, 40))
def test_windows_reach_from_the_first_piece_to_the_last_and_overlap_by_half(size, room):
    starts = window_starts(size, form(room + 2))
    assert starts[0] == 0
    assert starts[-1] + room >= size
    assert (np.diff(starts) <= max(room // 2, 1)).all()
    assert len(starts) == 1 or starts[-1] + room == size


def test_a_word_is_answered_where_it_has_most_context():
    rows = rows_of(word_rows, RowForm(np.zeros(0, int), np.zeros(0, int), 8), encoded([1] * 20))
    for row in rows:
        for word, place in zip(row.word_M, row.index_M, strict=True):
            left = place if row.ids_L[0] != 1000 else 99
            right = len(row.ids_L) - 1 - place if row.ids_L[-1] != 1019 else 99
            assert min(left, right) >= 1, f"word {word} stands at the edge of its window"


def test_ten_thousand_words_are_all_answered():
    rows = rows_of(word_rows, form(128), encoded([2] * 10_000))
    assert sum(len(row.word_M) for row in rows) == 10_000


def test_all_pieces_can_be_asked_about():
    (row,) = rows_of(word_rows, form(16, all_subwords=True), encoded([2, 1]))
    assert row.word_M.tolist() == [0, 0, 1]
    assert row.index_M.tolist() == [1, 2, 3]


def test_a_long_text_is_asked_about_in_every_window():
    rows = rows_of(text_rows, form(22), encoded([50]))
    assert len(rows) > 1
    assert all(row.index_M.tolist() == [0] and row.ids_L[0] == 101 for row in rows)


@pytest.fixture(scope="module", params=["wordpiece", "bpe"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "text.txt"))])
    return train_tokenizer(corpus, TokenizerConfig(kind=request.param, vocab_size=300), folder)


def test_words_have_the_pieces_of_running_text(tokenizer):
    words = ["anna", "paints", "the", "old", "house", "near", "the", "station", "."]
    (found,) = WordEncoder(tokenizer)([words])
    tokenizer.backend.encode_special_tokens = False
    assert found.ids_P.tolist() == tokenizer.backend.encode(" ".join(words), add_special_tokens=False).ids
    assert found.word_P[found.first_W].tolist() == list(range(len(words)))


@pytest.mark.parametrize("odd", ["", "\u200b", "\u00ad", " ", "👨‍👩‍👧", "שלום", "[SEP]", "\ufeff"])
def test_a_word_without_pieces_still_has_one(tokenizer, odd):
    for words in ([odd], ["anna", odd, "paints"], [odd, odd]):
        (found,) = WordEncoder(tokenizer)([words])
        assert len(found.first_W) == len(words)
        assert set(found.word_P.tolist()) == set(range(len(words)))


def test_company_and_memory_do_not_change_the_pieces_of_a_sentence(tokenizer, monkeypatch):
    sentences = [["anna", "paints"], [], ["paints", "anna", "x" * 100], ["x" * 100], ["", "anna"], []]
    alone = [WordEncoder(tokenizer)([words])[0] for words in sentences]
    encode = WordEncoder(tokenizer)
    monkeypatch.setattr("bertkit.finetune.windows._MAX_KNOWN", 2)
    for together in (encode(sentences), encode(sentences), [encode([words])[0] for words in sentences]):
        for found, expected in zip(together, alone, strict=True):
            assert all((a == b).all() and a.shape == b.shape for a, b in zip(found, expected, strict=True))


def test_special_tokens_in_the_text_are_ordinary_characters(tokenizer):
    (found,) = WordEncoder(tokenizer)([["anna", "[SEP]", "paints"]])
    assert tokenizer.special.sep_id not in found.ids_P


def test_batches_hold_every_row_once_and_equal_lengths_side_by_side():
    rows = rows_of(word_rows, form(32), *(encoded([1] * size) for size in (5, 3, 5, 9, 3)))
    chosen = list(by_length(rows, max_tokens=14))
    order = [index for batch in chosen for index in batch]
    assert sorted(order) == list(range(5))
    lengths = [len(rows[index].ids_L) for index in order]
    assert lengths == sorted(lengths)
    batch = collate([rows[i] for i in chosen[0]])
    assert batch.input_ids[batch.cu_seqlens[:-1].long()].tolist() == [101] * len(chosen[0])
    assert (batch.target_index.diff() > 0).all()


def test_hidden_tokens_depend_on_the_key_alone_and_are_never_special():
    special = SpecialIds(pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4, special_ids=frozenset(range(5)))
    ids_L = np.concatenate([[2], np.arange(10, 4010), [3]])
    row = Row(ids_L, np.arange(1, 4001), np.arange(4000), 0)
    draw = hiding_tokens(lambda row, key: row, 0.25, special)
    once, again, other = draw(row, 7).ids_L, draw(row, 7).ids_L, draw(row, 8).ids_L
    assert (once == again).all()
    hidden, hidden_otherwise = once != ids_L, other != ids_L
    assert (once[hidden] == 4).all()
    assert not hidden[[0, -1]].any()
    assert hidden.mean() == pytest.approx(0.25, abs=0.03)
    assert (hidden & hidden_otherwise).mean() == pytest.approx(0.0625, abs=0.02)
    assert (row.ids_L == ids_L).all()
    with pytest.raises(ValueError, match=r"train\.token_dropout"):
        hiding_tokens(lambda row, key: row, 0.25, replace(special, mask_id=None, unk_id=None))
    draw = hiding_tokens(lambda row, key: row, 0.25, replace(special, mask_id=None))
    assert (draw(row, 7).ids_L[hidden] == 1).all()


def test_a_batch_tells_the_two_texts_of_its_rows_apart():
    (row,) = rows_of(text_rows, form(16), encoded([3]))
    pair = row._replace(type_L=np.array([0, 0, 0, 1, 1]))
    assert collate([pair, pair]).token_type_ids.tolist() == [0, 0, 0, 1, 1] * 2
    assert collate([row]).token_type_ids is None
