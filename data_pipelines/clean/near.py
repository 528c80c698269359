"""Texts that share most of their words: found by MinHash, compared only where their signatures meet in a band.

A signature holds, for each of many hash functions, the smallest hash of a text's n-grams; the share of equal numbers in
two signatures estimates the share of n-grams that the texts have in common (Jaccard). Signatures are cut into bands;
texts that agree in a whole band are compared.
"""

# N texts, P hash functions, R numbers of a band, C pairs to compare

from collections.abc import Iterable

import numpy as np

from data_pipelines.clean.words import mixed, ngram_hashes

NUM_HASHES, ROWS_OF_BAND = 120, 2
_FACTORS_P = mixed(np.arange(1, NUM_HASHES + 1, dtype=np.uint64)).astype(np.uint32) | np.uint32(1)
_AT_ONCE = 1 << 12


def signature(hashes_W: np.ndarray, ngram: int) -> np.ndarray:
    """(P,) of 32 bits, from the n-grams of a text's word hashes; a text that is shorter is one n-gram."""
    hashes = ngram_hashes(hashes_W, min(ngram, len(hashes_W))) if len(hashes_W) else np.zeros(1, np.uint64)
    smallest_P = np.full(NUM_HASHES, np.iinfo(np.uint32).max, np.uint32)
    for start in range(0, len(hashes), _AT_ONCE):
        some = hashes[start : start + _AT_ONCE].astype(np.uint32)  # half the bits are multiplied in half the time
        smallest_P = np.minimum(smallest_P, (_FACTORS_P[:, None] * some).min(axis=1))
    return smallest_P


def find_copies(signatures_NP: np.ndarray, threshold: float) -> np.ndarray:
    """(N,): for each text the kept text before it that it nearly repeats, -1 where there is none. `signatures_NP` may
    be on disk: in addition to some numbers for each text, only a few of its rows are in memory."""
    num_texts = len(signatures_NP)
    pairs_C = _unique(second * num_texts + first for first, second in _alike(signatures_NP, threshold))
    copy_of_N = np.full(num_texts, -1, np.int64)
    for at in range(0, len(pairs_C), _AT_ONCE):
        later_C, earlier_C = np.divmod(pairs_C[at : at + _AT_ONCE], num_texts)
        for second, first in zip(later_C.tolist(), earlier_C.tolist(), strict=True):
            # What repeats a copy, but not the text that is kept of it, stays.
            if copy_of_N[first] < 0 and copy_of_N[second] < 0:
                copy_of_N[second] = first
    return copy_of_N


def _unique(bands: Iterable[np.ndarray]) -> np.ndarray:
    """The numbers in any of these, sorted. Copies meet in most bands: what repeats is dropped on the way,
    whenever as much was added as is known."""
    known, added = np.zeros(0, np.int64), list[np.ndarray]()
    for numbers in bands:
        added.append(numbers)
        if sum(map(len, added)) > len(known):
            known, added = np.unique(np.concatenate([known, *added])), []
    return np.unique(np.concatenate([known, *added]))


def _alike(signatures_NP: np.ndarray, threshold: float):
    """Of each band the pairs that agree in it and, by their signatures, in enough n-grams: of the texts
    that share a band, each with the first one and with the one before it."""
    for start in range(0, NUM_HASHES, ROWS_OF_BAND):
        band_N = _hashed(signatures_NP[:, start : start + ROWS_OF_BAND])
        order = np.argsort(band_N, kind="stable")
        begins = np.append(True, band_N[order[1:]] != band_N[order[:-1]])[: len(order)]
        leader = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
        first_C = np.concatenate([leader[~begins], order[np.flatnonzero(~begins) - 1]])
        second_C = np.tile(order[~begins], 2)
        alike_C = np.zeros(len(first_C), bool)
        for at in range(0, len(first_C), _AT_ONCE):
            first, second = first_C[at : at + _AT_ONCE], second_C[at : at + _AT_ONCE]
            shared = (signatures_NP[first] == signatures_NP[second]).mean(axis=1)
            alike_C[at : at + _AT_ONCE] = shared >= threshold
        yield first_C[alike_C], second_C[alike_C]


def _hashed(numbers_NR: np.ndarray) -> np.ndarray:
    """(N,) of 64 bits."""
    hashes_N = np.zeros(len(numbers_NR), np.uint64)
    for numbers_N in numbers_NR.T:
        hashes_N = mixed(hashes_N + numbers_N + np.uint64(1))
    return hashes_N
