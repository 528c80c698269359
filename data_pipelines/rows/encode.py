"""Batches of documents enter; their token ids and word starts leave in the same order, encoded on all cores."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate, compress
from threading import Lock
from typing import NamedTuple

import numpy as np
from tokenizers.models import BPE, WordPiece
from tokenizers.pre_tokenizers import ByteLevel

from data_pipelines.rows.batch import naturals
from data_pipelines.rows.shards import token_type
from data_pipelines.text.corpus import Document
from data_pipelines.vocab.tokenizer import Tokenizer
from data_pipelines.vocab.words import (
    Segmenter,
    WordTable,
    ideograph_starts,
    starts_from_segments,
    starts_from_word_ids,
    word_table,
    wordpiece_table,
)

# T tokens of a batch, V vocabulary

_PARALLELISM = "TOKENIZERS_PARALLELISM"
_MAX_THREADS = 16
"""About a sixteenth of the work holds Python's lock, which one thread has at a time: more would wait for it."""
_switching = Lock()
_switched: list[str | None] = []
"""For each run of `encode_ahead`, what the switch of the tokenizers' own threads was before."""


class Encoded(NamedTuple):
    """Documents laid end to end: the length of each, every token's id, and whether it is the first of its word."""

    lengths: list[int]
    ids_T: np.ndarray
    starts_word_T: np.ndarray

    def choose(self, flags: list[bool]) -> "Encoded":
        """The documents with a true flag."""
        if all(flags):
            return self
        chosen_T = np.repeat(flags, self.lengths)
        return Encoded(list(compress(self.lengths, flags)), self.ids_T[chosen_T], self.starts_word_T[chosen_T])


def encode_ahead(
    batches: Iterable[list[Document]],
    encode: Callable[[list[Document]], Encoded],
    max_chars: int,
    num_threads: int | None = None,
) -> Generator[tuple[list[Document], Encoded], None, None]:
    """Encode batches in the background while others are read and used, two more than there are threads and about
    `max_chars` characters at most. Close it, and all is as before."""
    num_threads = num_threads or _num_threads()
    pending: deque[tuple[list[Document], Future[Encoded]]] = deque()

    def first() -> tuple[list[Document], Encoded]:
        batch, encoded = pending.popleft()
        return batch, encoded.result()

    with _each_call_in_its_thread(), ThreadPoolExecutor(num_threads) as threads:
        try:
            for batch in batches:
                pending.append((batch, threads.submit(encode, batch)))
                while len(pending) > num_threads + 1 or (len(pending) > 1 and _num_chars(pending) > max_chars):
                    yield first()
            while pending:
                yield first()
        finally:
            for _, encoded in pending:
                encoded.cancel()


def encoder(tokenizer: Tokenizer, segmenter: Segmenter | None) -> Callable[[list[Document]], Encoded]:
    """What encodes a batch of documents.

    Words come from the vocabulary where it shows them, else from the tokenizer's or the segmenter's own words, which
    the faster way to encode leaves out.
    """
    backend = tokenizer.backend
    # "[MASK]" written in the corpus is text, not the special token.
    backend.encode_special_tokens = True
    id_type, table = token_type(tokenizer.vocab_size), None if segmenter else _shown_words(tokenizer)
    encode_batch = backend.encode_batch_fast if table else backend.encode_batch
    # The tokenizer itself takes a clause of Chinese for one word.
    ideograph_V = ideograph_starts(backend.get_vocab(), tokenizer.vocab_size) if table is segmenter is None else None
    segmenting = Lock()  # nobody promised that a segmenter can serve two threads

    def encode(batch: list[Document]) -> Encoded:
        encodings = encode_batch([document.text for document in batch], add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        lengths, ids_T = list(map(len, rows)), naturals(rows).astype(id_type)
        if segmenter:
            pairs = zip(batch, encodings, strict=True)
            with segmenting:
                starts = [
                    starts_from_segments(document.text, encoding.offsets, segmenter) for document, encoding in pairs
                ]
            return Encoded(lengths, ids_T, np.concatenate([np.empty(0, bool), *starts]))
        if table:
            starts_word_T = table.starts(ids_T)
        else:
            assert ideograph_V is not None
            word_T = naturals([encoding.word_ids for encoding in encodings])
            starts_word_T = starts_from_word_ids(word_T) | ideograph_V[ids_T]
        starts_word_T[[end for end in accumulate(lengths) if end < len(ids_T)]] = True
        return Encoded(lengths, ids_T, starts_word_T)

    return encode


def _num_threads() -> int:
    """As many as `tokenizers` itself would take: one where that is switched off, the number asked for, or the cores."""
    if os.environ.get(_PARALLELISM, "").lower() in ("false", "off", "no", "f", "n", "0"):
        return 1
    asked = os.environ.get("RAYON_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(int(asked) if asked.isdecimal() and int(asked) else cores, _MAX_THREADS)


def _num_chars(pending: Iterable[tuple[list[Document], Future]]) -> int:
    return sum(len(document.text) for batch, _ in pending for document in batch)


@contextmanager
def _each_call_in_its_thread() -> Iterator[None]:
    """Keep `tokenizers` from spreading each call over threads of its own, which wait for each other at every end."""
    with _switching:
        _switched.append(os.environ.get(_PARALLELISM))
        os.environ[_PARALLELISM] = "false"
    try:
        yield
    finally:
        with _switching:
            before = _switched.pop()
            if not _switched:  # the last one puts it back
                os.environ.pop(_PARALLELISM, None)
                os.environ.update({} if before is None else {_PARALLELISM: before})


def _shown_words(tokenizer: Tokenizer) -> WordTable | None:
    """The words as the vocabulary shows them: exactly for WordPiece, and for byte-level BPE but for contractions in
    pieces and for rare characters that are in pieces themselves."""
    backend = tokenizer.backend
    if isinstance(backend.model, WordPiece):
        return wordpiece_table(backend.get_vocab(), tokenizer.vocab_size, backend.model.continuing_subword_prefix)
    if isinstance(backend.model, BPE) and isinstance(backend.pre_tokenizer, ByteLevel):
        return word_table(backend.get_vocab(), tokenizer.vocab_size)
    return None
