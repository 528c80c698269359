"""Texts that share most of their words: found by MinHash, compared only where their signatures meet in a band.

A signature holds, for each of many hash functions, the smallest hash of a text's n-grams; the share of equal numbers in
two signatures estimates the share of n-grams that the texts have in common (Jaccard). Signatures are cut into bands;
texts that agree in a whole band are compared.
"""

# N texts, P hash functions, R numbers of a band, C pairs to compare

from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import numpy as np

from data_pipelines import durable
from data_pipelines.clean.on_disk import earlier_equals, filled, map_numbers, unique_numbers
from data_pipelines.clean.words import mixed, ngram_hashes

NUM_HASHES, ROWS_OF_BAND = 120, 2
_FACTORS_P = mixed(np.arange(1, NUM_HASHES + 1, dtype=np.uint64)).astype(np.uint32) | np.uint32(1)
_AT_ONCE = 1 << 12


def signature(hashes_W: np.ndarray, ngram: int) -> np.ndarray:
    """(P,) of 32 bits, from the n-grams of a text's word hashes; a text that is shorter is one n-gram."""
    hashes = ngram_hashes(hashes_W, min(ngram, len(hashes_W))) if len(hashes_W) else np.zeros(1, np.uint64)
    hashes = hashes.astype(np.uint32)  # half the bits are multiplied in half the time
    pieces = (hashes[start : start + _AT_ONCE] for start in range(0, len(hashes), _AT_ONCE))
    return reduce(np.minimum, ((_FACTORS_P[:, None] * piece).min(axis=1) for piece in pieces))


def find_copies(signatures_NP: np.ndarray, threshold: float, folder: Path) -> np.ndarray:
    """(N,): for each text the kept text before it that it nearly repeats, -1 where there is none. It is mapped from a
    file in `folder`, an empty one for what memory need not hold; `signatures_NP` may be mapped, too."""
    num_texts = len(signatures_NP)
    pairs = (
        later_C.astype(np.uint64) * np.uint64(num_texts) + earlier_C.astype(np.uint64)
        for earlier_C, later_C in _alike(signatures_NP, threshold, folder)
    )
    pairs_C = unique_numbers(folder / "pairs", pairs)
    copy_of_N = filled(folder / "copies", -1, np.int64, num_texts)
    for at in range(0, len(pairs_C), _AT_ONCE):
        later_C, earlier_C = np.divmod(pairs_C[at : at + _AT_ONCE], np.uint64(num_texts))
        for later, earlier in zip(later_C.tolist(), earlier_C.tolist(), strict=True):
            # What repeats a copy, but not the text that is kept of it, stays.
            if copy_of_N[earlier] < 0 and copy_of_N[later] < 0:
                copy_of_N[later] = earlier
    return copy_of_N


def _alike(signatures_NP: np.ndarray, threshold: float, folder: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The pairs that agree in a band and, by their signatures, in enough n-grams: of the texts that share a band, each
    with the first one and with the one before it. A pair is given for each band in which it agrees."""
    for band_N in _write_bands(signatures_NP, folder / "bands"):
        for equals in earlier_equals(band_N, folder):
            others = equals.before_C != equals.first_C
            earlier_C = np.concatenate([equals.first_C, equals.before_C[others]])
            later_C = np.concatenate([equals.place_C, equals.place_C[others]])
            for at in range(0, len(later_C), _AT_ONCE):
                earlier, later = earlier_C[at : at + _AT_ONCE], later_C[at : at + _AT_ONCE]
                shared = np.count_nonzero(signatures_NP[earlier] == signatures_NP[later], axis=1)
                alike = shared / NUM_HASHES >= threshold
                yield earlier[alike], later[alike]


def _write_bands(signatures_NP: np.ndarray, path: Path) -> np.ndarray:
    """(bands, N) of 64 bits in a file: the hash of each band of each text."""
    num_texts, num_bands = len(signatures_NP), NUM_HASHES // ROWS_OF_BAND
    with durable.naming(path), open(path, "wb") as file:
        for at in range(0, num_texts, _AT_ONCE):
            rows = signatures_NP[at : at + _AT_ONCE]
            for band in range(num_bands):
                file.seek(8 * (band * num_texts + at))
                file.write(_hashed(rows[:, band * ROWS_OF_BAND : (band + 1) * ROWS_OF_BAND]).tobytes())
    return map_numbers(path, np.dtype(np.uint64)).reshape(num_bands, num_texts)


def _hashed(numbers_NR: np.ndarray) -> np.ndarray:
    """(N,) of 64 bits."""
    hashes_N = np.zeros(len(numbers_NR), np.uint64)
    for numbers_N in numbers_NR.T:
        hashes_N = mixed(hashes_N + numbers_N + np.uint64(1))
    return hashes_N
