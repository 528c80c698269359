"""Where words start, from a vocabulary or a text: what whole-word masking needs."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from data_pipelines.text.characters import is_ideograph
from data_pipelines.vocab.marks import BYTE_LEVEL, INSIDE, SENTENCEPIECE, token_bytes, word_mark
from data_pipelines.vocab.segmenters import Segmenter
from data_pipelines.vocab.vocabulary import look_up

_LETTER, _DIGIT, _OTHER, _SPACE, _MARK, _IDEOGRAPH, _CONTRACTION = range(7)
# To byte-level BPE they are words of their own, whatever follows.
_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


class WordTable(NamedTuple):
    """Which tokens start a word, according to the vocabulary alone.

    `always_V` marks tokens that always start one. Where `class_V` is given, a token also starts a word if its character
    class differs from that at the end of the token before it: "world" and "," are two words without a space between.
    """

    always_V: np.ndarray
    class_V: np.ndarray | None
    end_V: np.ndarray | None = None
    """The class at the end of a token, where tokens may hold several."""

    def starts(self, ids_T: np.ndarray) -> np.ndarray:
        starts_T = look_up(self.always_V, ids_T)
        starts_T[:1] = True
        if self.class_V is not None:
            class_T = self.class_V[ids_T]
            before_T = class_T[:-1] if self.end_V is None else self.end_V[ids_T[:-1]]
            # The mark may be a token by itself; the next token belongs to it.
            starts_T[1:] |= (class_T[1:] != before_T) & (before_T != _MARK)
        return starts_T


def word_table(vocabulary: Mapping[str, int], vocab_size: int) -> WordTable:
    """The table of a WordPiece (##), byte-level BPE (Ġ) or SentencePiece (▁) vocabulary.

    Exact for WordPiece. In the others a token that begins with a Chinese character is its own word, because
    without spaces a whole clause would be one. The rest agrees with the pre-tokenizer of byte-level BPE, except for
    contractions and for rare characters that are split into several tokens. To SentencePiece, by its `word_ids`, a word
    is everything between two spaces; here it also ends where letters, digits and other characters meet, as in the
    other two: "world" and "," are two words. That concerns one token in ten; the others agree.
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
    end_V = class_V.copy()
    for token, index in vocabulary.items() if mark == SENTENCEPIECE else ():
        end_V[index] = _character_class(token[-1:])
    if mark in vocabulary:
        class_V[vocabulary[mark]] = end_V[vocabulary[mark]] = _MARK
    return WordTable(always_V, class_V, end_V)


def ideograph_starts(vocabulary: Mapping[str, int], vocab_size: int) -> np.ndarray:
    """(V,) bool: which tokens begin with a Chinese character: written out, as bytes, or only its first bytes."""
    mark = word_mark(vocabulary)
    starts_V = np.zeros(vocab_size, bool)
    for token, index in vocabulary.items():
        if mark == BYTE_LEVEL:
            raw = token_bytes(token).lstrip(b" ")
            text = raw.decode("utf-8", errors="replace")
            # The bytes E4 to E9 begin the characters U+4000 to U+9FFF.
            starts_V[index] = is_ideograph(text[:1]) or (text[:1] == "�" and 0xE4 <= raw[0] <= 0xE9)
        elif not token.startswith(INSIDE):
            starts_V[index] = is_ideograph(token.lstrip(SENTENCEPIECE)[:1])
    return starts_V


def wordpiece_table(vocabulary: Mapping[str, int], vocab_size: int, prefix: str = INSIDE) -> WordTable:
    """The table of a WordPiece vocabulary; tokens inside a word begin with the prefix."""
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
    """Where words start, from a segmenter's words and each token's position in the text."""
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
    """The class of a token's first character; a part of a character counts as a letter, and so does a token that ends
    in one."""
    if not text or text.isspace():
        return _SPACE
    first = text.strip()[0]
    if is_ideograph(first):
        return _LETTER if text.endswith("x") else _IDEOGRAPH
    return {"L": _LETTER, "M": _LETTER, "N": _DIGIT}.get(unicodedata.category(first)[0], _OTHER)


def _from_bytes(token: str) -> str:
    """A byte-level token as text; a part of a character becomes a letter."""
    return token_bytes(token).decode("utf-8", errors="replace").replace("�", "x")
