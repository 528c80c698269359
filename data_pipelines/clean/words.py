"""A text as the words that comparisons see: without case and punctuation, each ideograph is a word."""

# W words of a text

import re

import numpy as np

from data_pipelines.text.characters import IDEOGRAPHS, KANA

UNSPACED = re.compile(rf"[{IDEOGRAPHS}{KANA}]")
_WORD, _SPACED_WORD = re.compile(rf"{UNSPACED.pattern}|[^\W_]+"), re.compile(r"[^\W_]+")
_ASCII = bytes(range(128))
_IN_ASCII = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(128))
"""Each character of ASCII as a word has it, and a space for what stands between words."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(int(_FACTOR), -1, 1 << 64))
_AT_ONCE = 1 << 16
"""Bytes of words that are hashed at a time."""
_POWERS, _INVERSES = (np.cumprod(np.full(_AT_ONCE, factor)) for factor in (_FACTOR, _INVERSE))
_FEW = 16
_NONE = np.zeros(0, np.uint64)


def joined_words(text: str) -> str:
    """The words of a text, with spaces between them."""
    if not text.isascii():
        others = set(text.encode(errors="surrogatepass").translate(None, _ASCII).decode(errors="surrogatepass"))
        folded = "".join(others).casefold()
        if len(others) > _FEW or any(map(str.isalnum, folded)):
            word = _WORD if UNSPACED.search(folded) else _SPACED_WORD
            return " ".join(word.findall(text.casefold()))
        for other in others:  # dashes and quotes: without them the text is ASCII, whose words are found sooner
            text = text.replace(other, " ")
    return text.translate(_IN_ASCII)


def words_of(text: str) -> list[str]:
    return joined_words(text).split()


def word_hashes(words: str) -> np.ndarray:
    """(W,) of 64 bits, of words with spaces between them."""
    data, hashes, start = b" %s " % words.encode(), [_NONE], 0
    while start < len(data) - 1:
        end = data.rfind(b" ", start + 1, start + _AT_ONCE) + 1  # no word is cut
        if end:
            hashes.append(_hashes_of_bytes(np.frombuffer(data, np.uint8, end - start, start)))
        else:
            end = data.index(b" ", start + 1) + 1
            hashes.append(_hash_of_long(data[start + 1 : end - 1]))
        start = end - 1
    return mixed(np.concatenate(hashes))


def _hashes_of_bytes(bytes_B: np.ndarray) -> np.ndarray:
    """Of each word between two spaces the sum of its bytes, each times a power of a factor that grows with its place in
    the word: the difference of two running sums whose powers grow from the first byte on."""
    sums_B = np.cumsum(bytes_B * _POWERS[: len(bytes_B)])
    inside_B = bytes_B != ord(" ")
    borders = np.flatnonzero(inside_B[1:] != inside_B[:-1])
    before_W, last_W = borders[::2], borders[1::2]
    return (sums_B[last_W] - sums_B[before_W]) * _INVERSES[before_W]


def _hash_of_long(word: bytes) -> np.ndarray:
    """(1,) the same of one word, a part of its bytes at a time."""
    total = 0
    for at in range(0, len(word), _AT_ONCE):
        bytes_B = np.frombuffer(word[at : at + _AT_ONCE], np.uint8)
        total += int((bytes_B * _POWERS[: len(bytes_B)]).sum()) * pow(int(_FACTOR), at, 1 << 64)
    return np.array([total % (1 << 64)], np.uint64)


def text_hash(hashes_W: np.ndarray) -> np.uint64:
    """64 bits of all words of a text in their order; 0 of none."""
    if not len(hashes_W):
        return np.uint64(0)
    powers_W = np.full(len(hashes_W), _FACTOR)
    powers_W[-1] = 1
    powers_W = np.cumprod(powers_W[::-1])[::-1]
    return (hashes_W * powers_W).sum()


def ngram_hashes(hashes_W: np.ndarray, size: int) -> np.ndarray:
    """(W - size + 1,) of 64 bits: one for each run of `size` words; none where there are fewer."""
    count = len(hashes_W) - size + 1
    if count <= 0:
        return hashes_W[:0]
    joined = hashes_W[:count]
    for offset in range(1, size):
        joined = joined * _FACTOR + hashes_W[offset : offset + count]
    return joined


def mixed(values: np.ndarray) -> np.ndarray:
    """Every bit of the result depends on every bit of the value (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
