"""A vocabulary or a text enters, where words start leaves: what whole-word masking needs to know."""

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from data_pipelines.text.characters import is_ideograph
from data_pipelines.vocab.marks import BYTE_LEVEL, INSIDE, SENTENCEPIECE, token_bytes, word_mark
from data_pipelines.vocab.vocabulary import look_up

Segmenter = Callable[[str], Iterable[str]]
"""Splits a text into words that, put together again, give the text."""

_LETTER, _DIGIT, _OTHER, _SPACE, _MARK, _IDEOGRAPH, _CONTRACTION = range(7)
# Byte-level BPE takes them for words of their own, whatever stands behind them.
_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


class WordTable(NamedTuple):
    """Which tokens start a word, told from the vocabulary alone.

    `always_V` marks tokens that start one wherever they stand. Where `class_V` is given, so does a token of another
    character class than the one before it ("world" and "," are two words although no space is between them).
    """

    always_V: np.ndarray
    class_V: np.ndarray | None

    def starts(self, ids_T: np.ndarray) -> np.ndarray:
        starts_T = look_up(self.always_V, ids_T)
        starts_T[:1] = True
        if self.class_V is not None:
            class_T = self.class_V[ids_T]
            # The mark of a word's start may be a token by itself; what follows belongs to it.
            starts_T[1:] |= (class_T[1:] != class_T[:-1]) & (class_T[:-1] != _MARK)
        return starts_T


def word_table(vocabulary: Mapping[str, int], vocab_size: int) -> WordTable:
    """Read the table off how the tokens are written: WordPiece (##), byte-level BPE (Ġ) or SentencePiece (▁).

    Exact for WordPiece. Elsewhere a token that begins with a Chinese character is a word of its own: without spaces
    a whole clause would be one. For the rest it agrees with the usual pre-tokenizers but for contractions and rare
    characters that are in pieces; what the tokenizer itself calls a word (`word_ids`) is exact.
    """
    mark = word_mark(vocabulary)
    if mark is None:
        raise ValueError(
            "this vocabulary does not show where words start (no ##, Ġ or ▁); give every example its `word_ids`"
        )
    if mark == INSIDE:
        return wordpiece_table(vocabulary, vocab_size)
    ideograph_V = ideograph_starts(vocabulary, vocab_size)
    always_V = np.ones(vocab_size, bool)
    class_V = np.full(vocab_size, _OTHER, np.int8)
    for token, index in vocabulary.items():
        always_V[index] = ideograph_V[index] or token.startswith((mark, "Ċ"))
        class_V[index] = _character_class(_from_bytes(token) if mark == BYTE_LEVEL else token.lstrip(mark))
    for token in _CONTRACTIONS if mark == BYTE_LEVEL else ():
        if token in vocabulary:
            always_V[vocabulary[token]], class_V[vocabulary[token]] = True, _CONTRACTION
    if mark in vocabulary:
        class_V[vocabulary[mark]] = _MARK
    return WordTable(always_V, class_V)


def ideograph_starts(vocabulary: Mapping[str, int], vocab_size: int) -> np.ndarray:
    """(V,) bool: which tokens begin with a Chinese character, be it written out, in bytes, or only its first bytes."""
    mark = word_mark(vocabulary)
    starts_V = np.zeros(vocab_size, bool)
    for token, index in vocabulary.items():
        if mark == BYTE_LEVEL:
            raw = token_bytes(token).lstrip(b" ")
            text = raw.decode("utf-8", errors="replace")
            # E4 to E9 begin the characters U+4000 to U+9FFF; alone, they are the first bytes of one.
            starts_V[index] = is_ideograph(text[:1]) or (text[:1] == "�" and 0xE4 <= raw[0] <= 0xE9)
        elif not token.startswith(INSIDE):
            starts_V[index] = is_ideograph(token.lstrip(SENTENCEPIECE)[:1])
    return starts_V


def wordpiece_table(vocabulary: Mapping[str, int], vocab_size: int, prefix: str = INSIDE) -> WordTable:
    """The table of a WordPiece vocabulary, whose tokens inside a word are written with the prefix."""
    always_V = np.ones(vocab_size, bool)
    always_V[[index for token, index in vocabulary.items() if token.startswith(prefix) and token != prefix]] = False
    return WordTable(always_V, None)


def starts_from_word_ids(word_ids: Sequence[int | None] | np.ndarray) -> np.ndarray:
    """Where words start, from a tokenizer's word number for each token (None for special tokens)."""
    numbers = np.array(word_ids, np.float64)  # None becomes NaN, which differs from everything
    starts = np.ones(len(numbers), bool)
    starts[1:] = (numbers[1:] != numbers[:-1]) | (numbers[1:] < 0)
    return starts


def starts_from_segments(text: str, offsets: Sequence[tuple[int, int]], segmenter: Segmenter) -> np.ndarray:
    """Where words start, from a segmenter's words and each token's place in the text."""
    lengths = [len(word) for word in segmenter(text)]
    if sum(lengths) != len(text):
        raise ValueError(f"the segmenter's words make up {sum(lengths)} characters of a text of {len(text)}")
    word_of_token = np.searchsorted(np.cumsum(lengths), [start for start, _ in offsets], side="right")
    return starts_from_word_ids(word_of_token)


def jieba_segmenter() -> Segmenter:
    """Chinese words by jieba; other scripts are split at spaces and punctuation."""
    try:
        import jieba
    except ImportError:
        raise ImportError("the jieba segmenter needs the zh extra: pip install 'bertkit[zh]'") from None
    jieba.setLogLevel("WARNING")
    return jieba.cut


def _character_class(text: str) -> int:
    """The class of a token's first character; parts of a character count as letters, and so does what ends in one."""
    if not text or text.isspace():
        return _SPACE
    first = text.strip()[0]
    if is_ideograph(first):
        return _LETTER if text.endswith("x") else _IDEOGRAPH
    return {"L": _LETTER, "M": _LETTER, "N": _DIGIT}.get(unicodedata.category(first)[0], _OTHER)


def _from_bytes(token: str) -> str:
    """A byte-level token as text; bytes that are no whole character become a letter."""
    return token_bytes(token).decode("utf-8", errors="replace").replace("�", "x")
