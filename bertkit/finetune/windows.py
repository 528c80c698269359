"""Words enter, rows of pieces leave; long sentences are cut into overlapping windows, and no word is ever lost.

The same rows serve training, evaluation and prediction: each word is asked about in exactly one of them, the one
where it has most context.
"""

# P pieces of a sentence, W its words, L pieces of a row with its frame

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from data_pipelines.tokenizer import Tokenizer

_MAX_KNOWN, _LONGEST_KNOWN = 1 << 18, 64
"""Words that an encoder remembers, and the characters of the longest."""


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

    before: list[int]
    after: list[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Frame":
        special = tokenizer.special
        return cls(*([index] if index is not None else [] for index in (special.cls_id, special.sep_id)))


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
        self._known: dict[str, list[int]] = {}

    def __call__(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        spaced = [[word if index == 0 else f" {word}" for index, word in enumerate(words)] for words in sentences]
        new = list({word for words in spaced for word in words if word not in self._known})
        encodings = self._backend.encode_batch_fast(new, add_special_tokens=False)
        pieces = {word: encoding.ids or self._stand_in for word, encoding in zip(new, encodings, strict=True)}
        known = self._known
        encoded = [_encoded([known.get(word) or pieces[word] for word in words]) for words in spaced]
        if len(known) < _MAX_KNOWN:
            known |= {word: ids for word, ids in pieces.items() if len(word) <= _LONGEST_KNOWN}
        return encoded


def _encoded(pieces: list[list[int]]) -> Encoded:
    lengths_W = np.fromiter(map(len, pieces), np.int64, len(pieces))
    ids_P = np.fromiter(chain.from_iterable(pieces), np.int64, int(lengths_W.sum()))
    return Encoded(ids_P, np.repeat(np.arange(len(pieces)), lengths_W), np.cumsum(lengths_W) - lengths_W)


def word_rows(encoded: Encoded, sentence: int, frame: Frame, max_length: int, pieces: str = "first") -> Iterator[Row]:
    """The rows that ask for a tag at each word's first piece, or at all pieces."""
    size = len(encoded.ids_P)
    starts = window_starts(size, max_length - len(frame.before) - len(frame.after))
    asked = encoded.first_W if pieces == "first" else np.arange(size)
    if len(starts) == 1:
        places = asked + len(frame.before)
        yield Row(_framed(encoded.ids_P, frame), places, encoded.word_P[asked], sentence)
        return
    room = max_length - len(frame.before) - len(frame.after)
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
    return np.concatenate([np.array(frame.before, np.int64), ids, np.array(frame.after, np.int64)])
