"""Words enter, rows of pieces leave; long sentences are cut into overlapping windows, and no word is ever lost.

The same rows serve training, evaluation and prediction: each word is asked about in exactly one of them, the one
where it has most context.
"""

# P pieces of a sentence, W its words (in the encoder: of all sentences), S sentences, L pieces of a row with its frame

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from data_pipelines.vocab.tokenizer import Tokenizer

_MAX_KNOWN, _LONGEST_KNOWN = 1 << 17, 64
"""Words that an encoder remembers, at the beginning of sentences and inside, and the characters of the longest."""


class Encoded(NamedTuple):
    """A sentence in pieces."""

    ids_P: np.ndarray
    word_P: np.ndarray
    """The word each piece belongs to; every word has at least one."""
    first_W: np.ndarray
    """Each word's first piece."""


class Row(NamedTuple):
    """What the encoder reads at once: a sentence or a window of one, with its frame."""

    ids_L: np.ndarray
    places: np.ndarray
    """Where in the row answers are read."""
    words: np.ndarray
    """The word that each of them answers for."""
    sentence: int


class Frame(NamedTuple):
    """What stands before and after every row."""

    before: np.ndarray
    after: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Frame":
        special = tokenizer.special
        ends = ([] if index is None else [index] for index in (special.cls_id, special.sep_id))
        return cls(*(np.array(end, np.int64) for end in ends))


class WordEncoder:
    """Turns words into pieces as the encoder saw them in running text: every word but the first after a space.

    Tokenizers never join what a space separates, so each word is encoded once and then remembered.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._backend = tokenizer.backend
        # "[SEP]" in somebody's text is five characters, not the end of the sentence.
        self._backend.encode_special_tokens = True
        special = tokenizer.special
        # A word that the tokenizer makes nothing of (empty, zero-width) is an unknown one: it still gets a tag.
        self._stand_in = next(
            [index] for index in (special.unk_id, special.mask_id, special.sep_id, 0) if index is not None
        )
        self._first: dict[str, list[int]] = {}
        self._later: dict[str, list[int]] = {}

    def __call__(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """All sentences in a few operations on arrays; what is given out are views of them."""
        pieces = self._pieces(sentences)
        length_W = np.fromiter(map(len, pieces), np.int64, len(pieces))
        ids_P = np.fromiter(chain.from_iterable(pieces), np.int64, int(length_W.sum()))
        first_W = np.cumsum(length_W) - length_W
        # Where the words and the pieces of each sentence begin, and then places and words counted from there.
        words_S = np.fromiter(map(len, sentences), np.int64, len(sentences))
        word_S = np.append(0, np.cumsum(words_S))
        piece_S = np.append(first_W, len(ids_P))[word_S]
        word_P = np.repeat(np.arange(len(pieces)) - np.repeat(word_S[:-1], words_S), length_W)
        first_W -= np.repeat(piece_S[:-1], words_S)
        borders = zip(pairwise(word_S.tolist()), pairwise(piece_S.tolist()), strict=True)
        return [Encoded(ids_P[at:to], word_P[at:to], first_W[word:end]) for (word, end), (at, to) in borders]

    def _pieces(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Those of every word of all sentences, one word after the other."""
        first, later = self._first, self._later
        new_first = list({words[0] for words in sentences if words} - first.keys())
        new_later = list(set(chain.from_iterable(words[1:] for words in sentences)) - later.keys())
        encodings = self._backend.encode_batch_fast(
            [*new_first, *(f" {word}" for word in new_later)], add_special_tokens=False
        )
        found = iter([encoding.ids or self._stand_in for encoding in encodings])
        first.update(zip(new_first, found, strict=False))
        later.update(zip(new_later, found, strict=True))
        pieces: list[list[int]] = []
        for words in sentences:
            if words:
                pieces.append(first[words[0]])
                pieces.extend(map(later.__getitem__, words[1:]))
        self._forget(new_first, new_later)
        return pieces

    def _forget(self, new_first: list[str], new_later: list[str]) -> None:
        """Stay small: very long words do not come again, and a memory that is full starts anew."""
        for known, new in ((self._first, new_first), (self._later, new_later)):
            for word in new:
                if len(word) > _LONGEST_KNOWN:
                    del known[word]
            if len(known) > _MAX_KNOWN:
                known.clear()


def word_rows(encoded: Encoded, sentence: int, frame: Frame, max_length: int, pieces: str = "first") -> Iterator[Row]:
    """The rows that ask for a tag at each word's first piece, or at all pieces."""
    size, room = len(encoded.ids_P), max_length - len(frame.before) - len(frame.after)
    asked = encoded.first_W if pieces == "first" else np.arange(size)
    if size <= room:
        words = np.arange(len(asked)) if pieces == "first" else encoded.word_P
        yield Row(_framed(encoded.ids_P, frame), asked + len(frame.before), words, sentence)
        return
    starts = window_starts(size, room)
    # All pieces of a word are asked about where its first one has most context, as far as they lie inside.
    owner_P = owners(encoded.first_W, starts, room, size)[encoded.word_P]
    for index, start in enumerate(starts):
        here = asked[(owner_P[asked] == index) & (asked < start + room)]
        if len(here):
            ids_L = _framed(encoded.ids_P[start : start + room], frame)
            yield Row(ids_L, here - start + len(frame.before), encoded.word_P[here], sentence)


def text_rows(encoded: Encoded, sentence: int, frame: Frame, max_length: int) -> Iterator[Row]:
    """The rows that ask for one label a text; each window of a long text is asked, and the answers are averaged."""
    room = max_length - len(frame.before) - len(frame.after)
    for start in window_starts(len(encoded.ids_P), room):
        yield Row(_framed(encoded.ids_P[start : start + room], frame), np.zeros(1, int), np.zeros(1, int), sentence)


def window_starts(size: int, room: int) -> np.ndarray:
    """Where windows of `room` pieces begin: each half a window after the one before it, the last at the end."""
    if size <= room:
        return np.zeros(1, np.int64)
    step = max(room // 2, 1)
    return np.append(np.arange(0, size - room, step), size - room)


def owners(first_W: np.ndarray, starts: np.ndarray, room: int, size: int) -> np.ndarray:
    """The window that answers each word: the one with most pieces on the word's poorer side."""
    best_W = np.full(len(first_W), -1, np.int64)
    owner_W = np.zeros(len(first_W), np.int64)
    for index, start in enumerate(starts):
        end = start + room
        left = np.where(start == 0, size, first_W - start)  # nothing is missing before the first piece of all
        right = np.where(end >= size, size, end - 1 - first_W)
        context_W = np.where((first_W >= start) & (first_W < end), np.minimum(left, right), -1)
        better = context_W > best_W
        owner_W[better], best_W[better] = index, context_W[better]
    return owner_W


def _framed(ids: np.ndarray, frame: Frame) -> np.ndarray:
    return np.concatenate((frame.before, ids, frame.after))
