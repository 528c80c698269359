"""A text as the words that comparisons see: without case and punctuation, each ideograph is a word."""

# W words of a text

import re
import zlib

import numpy as np

from data_pipelines.text.characters import IDEOGRAPHS, KANA

_WORD = re.compile(rf"[{IDEOGRAPHS}{KANA}]|[^\W_]+")
_IN_ASCII = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(128))
"""Each character of ASCII as a word has it, and a space for what stands between words."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def words_of(text: str) -> list[str]:
    if text.isascii():  # the same words in a third of the time
        return text.translate(_IN_ASCII).split()
    return _WORD.findall(text.casefold())


class _Checksums(dict[str, int]):
    """Of the words that came lately."""

    def __missing__(self, word: str) -> int:
        if len(self) >= 1 << 14:
            self.clear()
        self[word] = checksum = zlib.crc32(word.encode(errors="surrogatepass"))
        return checksum


_checksum_of = _Checksums().__getitem__


def word_hashes(words: list[str]) -> np.ndarray:
    """(W,) of 64 bits."""
    return mixed(np.fromiter(map(_checksum_of, words), np.uint64, len(words)))


def text_hash(hashes_W: np.ndarray) -> np.uint64:
    """64 bits of all words of a text in their order; 0 of none."""
    if not len(hashes_W):
        return np.uint64(0)
    powers_W = np.full(len(hashes_W), _FACTOR)
    powers_W[-1] = 1
    powers_W = np.cumprod(powers_W[::-1])[::-1]
    return mixed((hashes_W * powers_W).sum(keepdims=True))[0]


def ngram_hashes(hashes_W: np.ndarray, size: int) -> np.ndarray:
    """(W - size + 1,) of 64 bits: one for each run of `size` words; none where there are fewer."""
    count = len(hashes_W) - size + 1
    if count <= 0:
        return hashes_W[:0]
    joined = np.zeros(count, np.uint64)
    for offset in range(size):
        joined = joined * _FACTOR + hashes_W[offset : offset + count]
    return mixed(joined)


def mixed(values: np.ndarray) -> np.ndarray:
    """Every bit of the result depends on every bit of the value (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
