"""Encoding ahead: many threads, one order, one caller of the segmenter, and nothing left changed."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Event

import numpy as np
import pytest

from data_pipelines.rows import encode as module
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.encode import Encoded, _num_threads, encode_ahead, encoder
from data_pipelines.rows.prepare import prepare
from data_pipelines.text.corpus import Document, read_documents
from data_pipelines.vocab.tokenizer import load_tokenizer


def one_document(number: int) -> list[Document]:
    return [Document(str(number), "here", False, 0)]


def test_batches_leave_in_the_order_they_entered():
    def encode(batch):
        number = int(batch[0].text)
        time.sleep(0.01 * (number % 3))
        return Encoded([1], np.array([number]), np.array([True]))

    encoding = encode_ahead(map(one_document, range(20)), encode, max_chars=10**6, num_threads=3)
    got = [(int(batch[0].text), int(encoded.ids_T[0])) for batch, encoded in encoding]
    assert got == [(number, number) for number in range(20)]


@pytest.mark.parametrize(("max_chars", "ahead"), [(10**6, 5), (3, 4), (1, 2)])
def test_only_a_few_batches_are_read_ahead(max_chars, ahead):
    """Two more than there are threads, and of long ones fewer."""
    read = []

    def batches():
        for number in range(9):
            read.append(number)
            yield one_document(number)

    encoding = encode_ahead(batches(), lambda batch: None, max_chars, num_threads=3)
    next(encoding)
    encoding.close()
    assert len(read) == ahead


def test_closed_early_it_starts_nothing_more(monkeypatch):
    begun, second_begins, third_is_cancelled = [], Event(), Event()

    class Threads(ThreadPoolExecutor):
        def submit(self, encode, batch):
            future = super().submit(encode, batch)
            if batch[0].text == "2":
                future.add_done_callback(lambda _: third_is_cancelled.set())
            return future

    def encode(batch):
        begun.append(batch[0].text)
        if batch[0].text == "1":  # keeps the only thread until the rest is cancelled; without that, "2" begins
            second_begins.set()
            third_is_cancelled.wait(timeout=10)

    monkeypatch.setattr(module, "ThreadPoolExecutor", Threads)
    encoding = encode_ahead(map(one_document, range(9)), encode, max_chars=10**6, num_threads=1)
    next(encoding)
    assert second_begins.wait(timeout=60)
    encoding.close()
    assert begun == ["0", "1"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TOKENIZERS_PARALLELISM": "false"}, 1),
        ({"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "3"}, 3),
        ({"RAYON_NUM_THREADS": "99"}, 16),
    ],
)
def test_what_limits_the_threads_of_tokenizers_limits_ours(environment, expected, monkeypatch):
    for name in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _num_threads() == expected


def test_two_at_once_put_the_switch_back_when_both_are_done(monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    first, second = (encode_ahead(map(one_document, range(3)), lambda batch: None, 100) for _ in range(2))
    next(first), next(second)
    first.close()
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    second.close()
    assert "TOKENIZERS_PARALLELISM" not in os.environ


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
    chosen = encoded.choose([False, True, True])
    assert (chosen.lengths, chosen.ids_T.tolist()) == ([0, 3], [2, 3, 4])
    assert chosen.starts_word_T.tolist() == [True, True, False]
    nothing = Encoded([], np.arange(0), np.empty(0, bool), num_sentences=[0, 0])
    assert not len(nothing.choose([False, True]).ids_T)
    chosen = encoded._replace(num_sentences=[1, 2]).choose([False, True])
    assert (chosen.lengths, chosen.ids_T.tolist(), chosen.num_sentences) == ([0, 3], [2, 3, 4], [2])


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


def test_a_segmenter_is_never_called_from_two_threads_at_once(home, corpus, tmp_path, small_batches, monkeypatch):
    monkeypatch.setenv("RAYON_NUM_THREADS", "3")
    inside = []

    def segmenter(text):
        inside.append(text)
        time.sleep(0.001)
        assert len(inside) == 1
        inside.clear()
        return [text]

    prepare(corpus, home / "wordpiece", PrepareConfig(), tmp_path / "shards", segmenter=segmenter)
