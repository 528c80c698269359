"""Short rows: every one has a target, and the rate is what was asked for wherever that is possible."""

import itertools

import numpy as np
import pytest

from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.keyed import row_keys
from data_pipelines.masks.masking import _enough_units, expected_targets, mask_tokens, row_sums
from data_pipelines.masks.units.span import start_rate
from data_pipelines.vocab.vocabulary import Vocabulary

SPECIAL = np.arange(1000) < 5
VOCABULARY = Vocabulary(4, ~SPECIAL, np.arange(5, 1000))
LENGTHS = [4, 8, 16, 32, 128]
MODES = list(itertools.product(("token", "word", "span"), ("bernoulli", "exact")))
SHORT = _enough_units(start_rate(0.15, MaskConfig(unit="span")))


def rows_of(length, num_rows):
    """Rows of so many maskable tokens between two special ones, and where their words start: 1.5 tokens each."""
    rng = np.random.default_rng(length)
    ids = rng.integers(5, 1000, (num_rows, length + 2))
    ids[:, 0], ids[:, -1] = 2, 3
    return ids.ravel(), np.arange(num_rows + 1) * (length + 2), rng.random(ids.size) < 2 / 3


def chosen(length, config, num_rows=20_000, seed=1):
    """How many targets each row has, and how many it has in the mean."""
    ids, starts, words = rows_of(length, num_rows)
    targets = mask_tokens(
        ids, starts, row_keys(np.arange(num_rows), seed, 0), VOCABULARY, config, rate=config.rate, starts_word_T=words
    )
    flags = np.zeros(len(ids), bool)
    flags[targets.index] = True
    return flags, row_sums(flags, starts), expected_targets(ids, starts, VOCABULARY, config, config.rate, words)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("unit", "count"), MODES)
def test_every_row_has_a_target_and_the_rate_is_the_expected_one(unit, count, length):
    config = MaskConfig(unit=unit, count=count)
    _, found, expected = chosen(length, config)
    assert found.min() >= 1
    error = 4 * (found - expected).std() / np.sqrt(len(found))
    # What the expectation leaves out: of the few longer rows that get a span, it counts one token.
    left_out = 0.02 * config.rate * length if unit == "span" and length >= SHORT else 0
    assert abs(found.mean() - expected.mean()) <= error + left_out
    if length >= 16:
        assert found.mean() / length == pytest.approx(config.rate, rel=0.1)
    elif unit != "word":
        assert found.mean() / length <= max(config.rate * (1.25 if unit == "token" else 1.02), 1.15 / length)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("unit", "count"), MODES)
def test_without_the_guarantee_the_rate_is_the_one_asked_for_and_rows_may_be_empty(unit, count, length):
    config = MaskConfig(unit=unit, count=count, at_least_one=False)
    _, found, expected = chosen(length, config)
    assert expected == pytest.approx(np.full(len(found), 0.15 * length))
    assert abs(found.mean() - 0.15 * length) < 4 * found.std() / np.sqrt(len(found))
    assert found.min() == 0 or length > 4


@pytest.mark.parametrize("length", [8, 16, 32])
def test_every_place_of_a_short_row_is_as_likely_a_target(length):
    flags, *_ = chosen(length, MaskConfig(unit="span"))
    by_place = flags.reshape(-1, length + 2)[:, 1:-1].mean(0)
    assert np.abs(by_place - by_place.mean()).max() < 5 * np.sqrt(0.15 * 0.85 / 20_000)


@pytest.mark.parametrize(("unit", "enough"), [("word", 19), ("span", SHORT)])
def test_rows_that_are_long_enough_are_masked_as_without_the_guarantee(unit, enough):
    """So nothing changes for them: neither the guarantee nor what it brings."""
    for length in (enough, 2 * enough):
        ids, starts, _ = rows_of(length, 500)
        masks = []
        for config in (MaskConfig(unit=unit), MaskConfig(unit=unit, at_least_one=False)):
            targets = mask_tokens(
                ids, starts, row_keys(np.arange(500), 1, 0), VOCABULARY, config, rate=0.15,
                starts_word_T=np.ones(len(ids), bool),
            )  # fmt: skip
            masks.append(targets.index)
        added = np.setdiff1d(*masks)
        empty = row_sums(np.isin(np.arange(len(ids)), masks[1]), starts) == 0
        assert len(np.setdiff1d(masks[1], masks[0])) == 0
        assert empty[np.searchsorted(starts, added, side="right") - 1].all()


@pytest.mark.parametrize(("unit", "count"), MODES)
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_nothing_and_everything_can_be_asked_for(unit, count, rate):
    ids, starts, words = rows_of(8, 50)
    targets = mask_tokens(
        ids, starts, row_keys(np.arange(50), 1, 0), VOCABULARY, MaskConfig(unit=unit, count=count), rate=rate,
        starts_word_T=words,
    )  # fmt: skip
    assert len(targets.index) == (400 if rate else 0)
