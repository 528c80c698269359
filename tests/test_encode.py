"""Encoding ahead: many threads, one order, one caller of the segmenter, and nothing left changed."""

import os
import time
from itertools import chain

import numpy as np
import pytest

from data_pipelines.config import PrepareConfig
from data_pipelines.corpus import Document, read_documents
from data_pipelines.encode import Encoded, encode_ahead, encoder
from data_pipelines.prepare import prepare
from data_pipelines.tokenizer import load_tokenizer

pytest_plugins = ["preparing_fixtures"]


def one_document(number: int) -> list[Document]:
    return [Document(str(number), "here", False, 0)]


def test_batches_leave_in_the_order_they_entered():
    def encode(batch):
        number = int(batch[0].text)
        time.sleep(0.01 * (number % 3))
        return Encoded([1], np.array([number]), np.array([True]))

    got = [
        (int(batch[0].text), int(encoded.ids_T[0]))
        for batch, encoded in encode_ahead(map(one_document, range(20)), encode)
    ]
    assert got == [(number, number) for number in range(20)]


def test_only_a_few_batches_are_read_ahead():
    read = []

    def batches():
        for number in range(1000):
            read.append(number)
            yield one_document(number)

    encoded_batches = encode_ahead(batches(), lambda batch: Encoded([], np.array([]), np.array([])))
    next(encoded_batches)
    encoded_batches.close()
    assert len(read) < 20


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_ids_are_those_of_encoding_one_document_at_a_time(home, corpus, kind):
    tokenizer = load_tokenizer(home / kind)
    documents = list(read_documents(corpus))
    encoded = encoder(tokenizer, None)(documents)
    one_by_one = [tokenizer.backend.encode(document.text, add_special_tokens=False).ids for document in documents]
    assert encoded.lengths == list(map(len, one_by_one))
    assert encoded.ids_T.tolist() == list(chain.from_iterable(one_by_one))
    firsts = np.cumsum([0, *encoded.lengths[:-1]])
    assert encoded.starts_word_T[firsts].all()


def test_documents_are_chosen_with_all_their_tokens():
    encoded = Encoded([2, 0, 3], np.arange(5), np.array([True, False, True, True, False]))
    assert encoded.choose([True] * 3) is encoded
    lengths, ids_T, starts_word_T = encoded.choose([False, True, True])
    assert (lengths, ids_T.tolist(), starts_word_T.tolist()) == ([0, 3], [2, 3, 4], [True, True, False])


@pytest.mark.parametrize("before", [None, "true"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_switch_of_the_tokenizers_threads_is_put_back(home, corpus, tmp_path, monkeypatch, before, fails):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if before:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", before)
    seen = []

    def segmenter(text):
        seen.append(os.environ.get("TOKENIZERS_PARALLELISM"))
        return [] if fails else text.split(" ")

    def spaces_too(text):
        words = segmenter(text)
        return [word + " " for word in words[:-1]] + words[-1:]

    if fails:
        with pytest.raises(ValueError, match="segmenter's words"):
            prepare(corpus, home / "wordpiece", PrepareConfig(), tmp_path / "shards", segmenter=spaces_too)
    else:
        prepare(corpus, home / "wordpiece", PrepareConfig(), tmp_path / "shards", segmenter=spaces_too)
    assert set(seen) == {"false"}
    assert os.environ.get("TOKENIZERS_PARALLELISM") == before


def test_a_segmenter_is_never_called_from_two_threads_at_once(home, corpus, tmp_path, small_batches):
    inside = []

    def segmenter(text):
        inside.append(text)
        time.sleep(0.001)
        assert len(inside) == 1
        inside.clear()
        return [text]

    prepare(corpus, home / "wordpiece", PrepareConfig(), tmp_path / "shards", segmenter=segmenter)
