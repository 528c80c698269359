"""Documents laid into rows: nothing lost, nothing too long, every border kept."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.cutting import RowBuilder

CLS, SEP = 2, 3
SPECIAL = SimpleNamespace(cls_id=CLS, sep_id=SEP)


def build(documents, **options):
    builder = RowBuilder(SPECIAL, PrepareConfig(**options))
    for batch in (documents[: len(documents) // 2], documents[len(documents) // 2 :]):  # batches do not matter
        ids = np.array([token for document in batch for token in document], np.uint16)
        builder.add([len(document) for document in batch], ids, ids % 2 == 0)
    num_tokens = builder.num_tokens
    rows = builder.take()
    assert num_tokens == len(rows.ids_T)
    assert builder.num_tokens == 0
    return rows


@given(st.lists(st.lists(st.integers(10, 9999), max_size=80), max_size=20), st.integers(8, 40), st.integers(1, 19))
@settings(deadline=None, max_examples=100)
def test_taking_rows_in_between_changes_none_of_them(documents, seq_len, border):
    whole = build(documents, seq_len=seq_len)
    builder = RowBuilder(SPECIAL, PrepareConfig(seq_len=seq_len))
    taken = []
    for batch in (documents[:border], documents[border:]):
        ids = np.array([token for document in batch for token in document], np.uint16)
        builder.add([len(document) for document in batch], ids, ids % 2 == 0)
        taken.append(builder.take())
    first = len(taken[0].ids_T)
    assert np.array_equal(np.concatenate([part.ids_T for part in taken]), whole.ids_T)
    assert [*taken[0].row_starts[:-1], *(taken[1].row_starts + first)] == whole.row_starts.tolist()
    assert [*taken[0].sequence_starts[:-1], *(taken[1].sequence_starts + first)] == whole.sequence_starts.tolist()


def pieces(rows):
    return [rows.ids_T[a:b].tolist() for a, b in zip(rows.sequence_starts, rows.sequence_starts[1:], strict=False)]


DOCUMENTS = st.lists(st.lists(st.integers(10, 9999), max_size=80), max_size=20)


@given(DOCUMENTS, st.integers(8, 40), st.sampled_from(["fill", "sentences", "line"]))
@settings(deadline=None, max_examples=150)
def test_rows_hold_every_token_in_order_between_cls_and_sep(documents, seq_len, mode):
    rows = build(documents, seq_len=seq_len, rows=mode)
    assert all(piece[0] == CLS and piece[-1] == SEP and len(piece) > 2 for piece in pieces(rows))
    inner = [token for piece in pieces(rows) for token in piece[1:-1]]
    assert inner == [token for document in documents for token in document]
    assert np.diff(rows.row_starts).max(initial=0) <= seq_len
    assert np.diff(rows.row_starts).min(initial=9) > 0
    assert set(rows.row_starts) <= set(rows.sequence_starts)
    framed = np.isin(rows.ids_T, (CLS, SEP))
    assert rows.starts_word_T[framed].all()
    assert np.array_equal(rows.starts_word_T[~framed], rows.ids_T[~framed] % 2 == 0)


@given(DOCUMENTS, st.integers(8, 40), st.sampled_from(["fill", "sentences", "line"]))
@settings(deadline=None, max_examples=100)
def test_no_sequence_holds_two_documents(documents, seq_len, mode):
    documents = [[i + 10] * len(document) for i, document in enumerate(documents)]
    assert all(len(set(piece[1:-1])) == 1 for piece in pieces(build(documents, seq_len=seq_len, rows=mode)))


@given(DOCUMENTS, st.integers(16, 40))
@settings(deadline=None, max_examples=100)
def test_filled_rows_are_full_but_for_an_eighth(documents, seq_len):
    lengths = np.diff(build(documents, seq_len=seq_len).row_starts)
    assert (lengths[:-1] > seq_len - seq_len // 8 - 2).all()


@given(DOCUMENTS, st.integers(8, 40))
@settings(deadline=None, max_examples=100)
def test_a_sentence_that_fits_into_a_row_is_whole(sentences, seq_len):
    rows = build(sentences, seq_len=seq_len, rows="sentences")
    found = pieces(rows)
    assert all([CLS, *sentence, SEP] in found for sentence in sentences if 0 < len(sentence) <= seq_len - 2)


def test_line_mode_never_shares_a_row():
    rows = build([[11] * 3, [12] * 3, [13] * 20], seq_len=10, rows="line")
    assert np.array_equal(rows.row_starts, rows.sequence_starts)
    assert np.diff(rows.row_starts).tolist() == [5, 5, 10, 10, 6]


def test_no_documents_make_no_rows():
    rows = build([], seq_len=8)
    assert (len(rows.ids_T), rows.row_starts.tolist()) == (0, [0])
