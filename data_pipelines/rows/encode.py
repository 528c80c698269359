"""Batches of documents to token ids and word starts, in the same order, encoded on all cores."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate, chain, compress
from threading import Lock
from typing import NamedTuple

import numpy as np
from tokenizers.models import BPE, WordPiece
from tokenizers.pre_tokenizers import ByteLevel

from data_pipelines.cores import num_cores
from data_pipelines.rows.batch import naturals
from data_pipelines.rows.shards import token_type
from data_pipelines.text.corpus import Document
from data_pipelines.text.sentences import sentences
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
"""More threads would wait for each other: about a sixteenth of the work holds Python's lock."""
_switching = Lock()
_switched: list[str | None] = []
"""The value of TOKENIZERS_PARALLELISM before each run of `encode_ahead`."""


class Encoded(NamedTuple):
    """Documents laid end to end: the length of each, every token's id, and whether a token is the first of its word."""

    lengths: list[int]
    ids_T: np.ndarray
    starts_word_T: np.ndarray
    num_sentences: list[int] | None = None
    """Of each document, where the lengths are those of sentences."""

    def choose(self, flags: list[bool]) -> "Encoded":
        """The documents with a true flag."""
        if all(flags):
            return self
        if self.num_sentences is None:
            kept, num_sentences = flags, None
        else:
            kept = np.repeat(flags, self.num_sentences).tolist()
            num_sentences = list(compress(self.num_sentences, flags))
        chosen_T = np.repeat(np.array(kept, bool), self.lengths)
        lengths = list(compress(self.lengths, kept))
        return Encoded(lengths, self.ids_T[chosen_T], self.starts_word_T[chosen_T], num_sentences)


def encode_ahead(
    batches: Iterable[list[Document]],
    encode: Callable[[list[Document]], Encoded],
    max_chars: int,
    num_threads: int | None = None,
) -> Generator[tuple[list[Document], Encoded], None, None]:
    """Encode batches in the background while others are read and used: at most two more than there are threads, and
    about `max_chars` characters. Closing it stops the work and restores the environment."""
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


def encoder(
    tokenizer: Tokenizer, segmenter: Segmenter | None, by_sentence: bool = False
) -> Callable[[list[Document]], Encoded]:
    """A function that encodes a batch of documents, or each of their sentences by itself.

    Words come from the vocabulary where it shows them, which allows the faster way to encode; otherwise from the
    tokenizer or the segmenter.
    """
    backend = tokenizer.backend
    # "[MASK]" written in the corpus is text, not the special token.
    backend.encode_special_tokens = True
    id_type, table = token_type(tokenizer.vocab_size), None if segmenter else _shown_words(tokenizer)
    encode_batch = backend.encode_batch_fast if table else backend.encode_batch
    # To the tokenizer itself a clause of Chinese is one word.
    ideograph_V = ideograph_starts(backend.get_vocab(), tokenizer.vocab_size) if table is segmenter is None else None
    segmenting = Lock()  # a segmenter need not be safe to call from two threads

    def encode(batch: list[Document]) -> Encoded:
        texts, num_sentences = [document.text for document in batch], None
        if by_sentence:
            split = [sentences(text) for text in texts]
            texts, num_sentences = list(chain.from_iterable(split)), list(map(len, split))
        encodings = encode_batch(texts, add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        lengths, ids_T = list(map(len, rows)), naturals(rows).astype(id_type)
        if segmenter:
            pairs = zip(texts, encodings, strict=True)
            with segmenting:
                starts = [starts_from_segments(text, encoding.offsets, segmenter) for text, encoding in pairs]
            return Encoded(lengths, ids_T, np.concatenate([np.empty(0, bool), *starts]), num_sentences)
        if table:
            starts_word_T = table.starts(ids_T)
        else:
            assert ideograph_V is not None
            word_T = naturals([encoding.word_ids for encoding in encodings])
            starts_word_T = starts_from_word_ids(word_T) | ideograph_V[ids_T]
        starts_word_T[[end for end in accumulate(lengths) if end < len(ids_T)]] = True
        return Encoded(lengths, ids_T, starts_word_T, num_sentences)

    return encode


def _num_threads() -> int:
    """As many as `tokenizers` itself would use: one where that is switched off, the number asked for, or one a core."""
    if os.environ.get(_PARALLELISM, "").lower() in ("false", "off", "no", "f", "n", "0"):
        return 1
    asked = os.environ.get("RAYON_NUM_THREADS", "")
    return min(int(asked) if asked.isdecimal() and int(asked) else num_cores(), _MAX_THREADS)


def _num_chars(pending: Iterable[tuple[list[Document], Future]]) -> int:
    return sum(len(document.text) for batch, _ in pending for document in batch)


@contextmanager
def _each_call_in_its_thread() -> Iterator[None]:
    """Keep `tokenizers` from using its own threads for each call, which wait for each other at the end of every
    call."""
    with _switching:
        _switched.append(os.environ.get(_PARALLELISM))
        os.environ[_PARALLELISM] = "false"
    try:
        yield
    finally:
        with _switching:
            before = _switched.pop()
            if not _switched:  # the last one restores it
                os.environ.pop(_PARALLELISM, None)
                os.environ.update({} if before is None else {_PARALLELISM: before})


def _shown_words(tokenizer: Tokenizer) -> WordTable | None:
    """Words as the vocabulary shows them: exact for WordPiece; in byte-level BPE except for contractions and rare
    characters that are split into several tokens."""
    backend = tokenizer.backend
    if isinstance(backend.model, WordPiece):
        return wordpiece_table(backend.get_vocab(), tokenizer.vocab_size, backend.model.continuing_subword_prefix)
    if isinstance(backend.model, BPE) and isinstance(backend.pre_tokenizer, ByteLevel):
        return word_table(backend.get_vocab(), tokenizer.vocab_size)
    return None
