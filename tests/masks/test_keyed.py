"""Keyed randomness: the same keys give the same bits, other keys unrelated ones."""

import numpy as np
import pytest

from data_pipelines.masks.keyed import GOLDEN, ROW_STEP, below, fold, fold_each, mix, row_keys, threshold, token_bits


def test_scalars_and_arrays_fold_to_the_same_keys():
    together = fold_each(7, 3, np.arange(5))
    assert [fold(7, 3, row) for row in range(5)] == together.tolist()
    assert fold_each(7, np.full(5, 3), np.arange(5)).tolist() == together.tolist()


def test_neighbouring_keys_share_no_pattern():
    keys = np.concatenate([fold_each(seed, epoch, np.arange(200)) for seed in range(4) for epoch in range(4)])
    assert len(np.unique(keys)) == len(keys)
    bits = np.unpackbits(keys.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(bits))


def test_mixing_is_a_bijection_on_a_sample():
    values = np.arange(100_000, dtype=np.uint64)
    assert len(np.unique(mix(values.copy()))) == len(values)


def test_a_tokens_bits_depend_on_its_row_key_and_position_alone():
    keys = fold_each(1, np.arange(3))
    together = token_bits(keys, np.array([0, 4, 4, 10]))
    alone = token_bits(keys[2:], np.array([0, 9]))
    assert together[4:].tolist() == alone[:6].tolist()
    assert token_bits(keys[2:], np.array([0, 9]), first_position=2)[:7].tolist() == alone[2:].tolist()


def test_rows_of_one_epoch_share_no_token_key():
    """Tokens meet where ROW_STEP * rows + GOLDEN * positions = 0 modulo 2**64: the shortest such step is long."""
    one, other = (1, -ROW_STEP * pow(GOLDEN, -1, 2**64) % 2**64), (0, 2**64)
    while True:  # Gauss's reduction of a lattice of two dimensions
        one, other = sorted((one, other), key=lambda step: step[0] ** 2 + step[1] ** 2)
        square = one[0] ** 2 + one[1] ** 2
        times = (2 * (one[0] * other[0] + one[1] * other[1]) + square) // (2 * square)
        if not times:
            break
        other = (other[0] - times * one[0], other[1] - times * one[1])
    assert (ROW_STEP * one[0] + GOLDEN * one[1]) % 2**64 == 0
    assert min(map(abs, one)) > 5 * 10**8


def test_neighbouring_rows_and_epochs_are_unrelated():
    rows = [
        token_bits(row_keys(np.array([row]), 7, epoch), np.array([0, 4000])) for row in range(5) for epoch in range(3)
    ]
    for i, one in enumerate(rows):
        for other in rows[:i]:
            differing = np.unpackbits((one ^ other).view(np.uint8))
            assert abs(differing.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(differing))
            assert abs(np.corrcoef(one.astype(float), other.astype(float))[0, 1]) < 5 / np.sqrt(4000)


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 1.0])
def test_a_threshold_is_passed_with_its_probability(probability):
    bits = mix(np.arange(200_000, dtype=np.uint64))
    share = (bits < threshold(probability)).mean()
    assert abs(share - probability) <= 4 * np.sqrt(max(probability * (1 - probability), 1e-12) / len(bits)) + 1e-12


def test_draws_below_a_limit_are_uniform():
    draws = below(mix(np.arange(70_000, dtype=np.uint64)), 7)
    counts = np.bincount(draws.astype(int), minlength=7)
    assert len(counts) == 7
    assert np.abs(counts - 10_000).max() < 5 * np.sqrt(10_000)
