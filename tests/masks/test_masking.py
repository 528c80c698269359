"""What masking promises: the rates, the 80/10/10 split, and nothing else touched, in every unit and count mode."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.keyed import row_keys
from data_pipelines.masks.masking import KEPT, MASKED, RANDOM, mask_tokens
from data_pipelines.vocab.vocabulary import Vocabulary

MODES = list(itertools.product(("token", "word", "span"), ("bernoulli", "exact")))
VOCAB_SIZE, MASK_ID = 1000, 4
SPECIAL = np.arange(VOCAB_SIZE) < 5
VOCABULARY = Vocabulary(MASK_ID, ~SPECIAL, np.arange(5, VOCAB_SIZE))


def rows_of(lengths, seed=0):
    """Rows of random ordinary tokens between [CLS] 2 and [SEP] 3, and where their words start."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(5, VOCAB_SIZE, starts[-1])
    for start, end in itertools.pairwise(starts):
        if end - start >= 2:
            ids[start], ids[end - 1] = 2, 3
    return ids, starts, rng.random(starts[-1]) < 0.6


class Masked(NamedTuple):
    input_ids: np.ndarray
    target_index: np.ndarray
    target_ids: np.ndarray
    target_kind: np.ndarray


def mask(ids, starts, words, config, seed=1, row_ids=None, **options) -> Masked:
    keys = row_keys(np.arange(len(starts) - 1) if row_ids is None else row_ids, seed, 0)
    options = {"rate": config.rate, "starts_word_T": words} | options
    targets = mask_tokens(ids, starts, keys, VOCABULARY, config, **options)
    now = ids.copy()
    now[targets.index] = targets.new_ids
    return Masked(now, targets.index, targets.ids, targets.kind)


def units_of(ids, starts, words):
    """The unit number of every token for unit "word", computed the slow way."""
    units, unit = np.zeros(len(ids), int), 0
    for start, end in itertools.pairwise(starts):
        for place in range(start, end):
            first = place == start or words[place] or SPECIAL[ids[place]] or SPECIAL[ids[place - 1]]
            unit += first
            units[place] = unit
    return units


@pytest.mark.parametrize(("unit", "count"), MODES)
def test_rates_are_within_three_standard_errors_on_a_million_tokens(unit, count):
    ids, starts, words = rows_of(np.full(2000, 502))
    config = MaskConfig(unit=unit, count=count)
    got = mask(ids, starts, words, config)
    chosen = np.zeros(len(ids), bool)
    chosen[got.target_index] = True
    # Rows are independent, tokens of one word or span are not: the error is taken over rows.
    per_row = chosen.reshape(2000, 502).sum(1) / 500
    error = max(per_row.std() / np.sqrt(2000), 1e-4)
    assert abs(per_row.mean() - 0.15) < 3 * error
    for kind, share in ((MASKED, 0.8), (RANDOM, 0.1), (KEPT, 0.1)):
        hits = np.zeros(len(ids))
        hits[got.target_index[got.target_kind == kind]] = 1
        of_row = hits.reshape(2000, 502).sum(1) - share * chosen.reshape(2000, 502).sum(1)
        assert abs(of_row.mean()) < 3 * of_row.std() / np.sqrt(2000)


@pytest.mark.parametrize(("unit", "count"), [mode for mode in MODES if mode != ("span", "exact")])
def test_every_position_of_a_row_is_chosen_equally_often(unit, count):
    """But for spans of exact count: one that the row's end has cut is short and fits the budget more often."""
    ids, starts, words = rows_of(np.full(20_000, 22))
    got = mask(ids, starts, words, MaskConfig(unit=unit, count=count))
    chosen = np.zeros(len(ids))
    chosen[got.target_index] = 1
    by_place = chosen.reshape(-1, 22)[:, 1:-1].mean(0)
    assert np.abs(by_place - by_place.mean()).max() < 5 * np.sqrt(0.15 * 0.85 / 20_000)


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    mode=st.sampled_from(MODES),
    rate=st.floats(0.01, 0.95),
    shares=st.sampled_from([(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.5)]),
    seed=st.integers(-(2**40), 2**70),
)
@settings(max_examples=150, deadline=None)
def test_invariants(lengths, mode, rate, shares, seed):
    unit, count = mode
    config = MaskConfig(unit=unit, count=count, rate=rate, mask_share=shares[0], random_share=shares[1])
    ids, starts, words = rows_of(lengths, seed=3)
    got = mask(ids, starts, words, config, seed=seed)
    # labels restore the original exactly, and unselected tokens are untouched
    restored = got.input_ids.copy()
    restored[got.target_index] = got.target_ids
    assert np.array_equal(restored, ids)
    assert (np.diff(got.target_index) > 0).all()
    # specials are never selected and never drawn
    assert not SPECIAL[ids[got.target_index]].any()
    now = got.input_ids[got.target_index]
    assert (now[got.target_kind == MASKED] == MASK_ID).all()
    assert not SPECIAL[now[got.target_kind == RANDOM]].any()
    assert np.array_equal(now[got.target_kind == KEPT], got.target_ids[got.target_kind == KEPT])
    # a row with anything to choose has a target
    for start, end in itertools.pairwise(starts):
        if (~SPECIAL[ids[start:end]]).any():
            assert ((got.target_index >= start) & (got.target_index < end)).any()


@pytest.mark.parametrize(("unit", "count"), MODES)
@pytest.mark.parametrize(("lengths", "rate"), [([17, 1, 0, 60, 33], 0.3), ([6, 2, 5, 0, 9, 2, 2, 7, 4, 2], 0.01)])
def test_a_rows_mask_does_not_depend_on_its_neighbours(unit, count, lengths, rate):
    """Nor where most rows have no token below the rate and some, of two special tokens, have none to give."""
    config = MaskConfig(unit=unit, count=count, rate=rate)
    ids, starts, words = rows_of(lengths)
    for seed in range(8):
        together = mask(ids, starts, words, config, seed)
        for row, (start, end) in enumerate(itertools.pairwise(starts)):
            one, its_words = np.array([0, end - start]), words[start:end]
            alone = mask(ids[start:end], one, its_words, config, seed, row_ids=np.array([row]))
            assert np.array_equal(together.input_ids[start:end], alone.input_ids)


@pytest.mark.parametrize("count", ["bernoulli", "exact"])
def test_whole_words_are_chosen_and_corrupted_as_a_whole(count):
    ids, starts, words = rows_of([200] * 20)
    got = mask(ids, starts, words, MaskConfig(unit="word", count=count))
    units = units_of(ids, starts, words)
    kind = np.full(len(ids), -1)
    kind[got.target_index] = got.target_kind
    for unit in np.unique(units[~SPECIAL[ids]]):
        assert len(set(kind[units == unit])) == 1


def test_random_replacements_differ_within_a_word():
    ids, starts, _ = rows_of([400] * 10)
    one_long_word_a_row = np.zeros(len(ids), bool)
    got = mask(ids, starts, one_long_word_a_row, MaskConfig(unit="word", mask_share=0.0, random_share=1.0, rate=0.9))
    assert len(np.unique(got.input_ids[got.target_index])) > VOCAB_SIZE // 2


def test_exact_takes_the_rounded_share_of_every_row():
    ids, starts, words = rows_of([102] * 500)
    for unit in ("token", "span"):
        got = mask(ids, starts, words, MaskConfig(unit=unit, count="exact", rate=0.155))
        counts = np.diff(np.searchsorted(got.target_index, starts))
        assert set(counts.tolist()) == {15, 16}
        assert abs(counts.mean() - 15.5) < 4 * 0.5 / np.sqrt(500)


def test_spans_have_the_length_that_was_asked_for():
    ids, starts, words = rows_of([20_002])
    got = mask(ids, starts, words, MaskConfig(unit="span", rate=0.01, span_mean=3.8, span_max=10))
    runs = np.split(got.target_index, np.flatnonzero(np.diff(got.target_index) != 1) + 1)
    lengths = np.array([len(run) for run in runs])
    keep = 1 - 1 / 3.8
    expected = sum(keep**distance for distance in range(10))
    # Two spans rarely touch at this rate; the bound leaves room for it.
    assert abs(lengths.mean() - expected) < 4 * lengths.std() / np.sqrt(len(lengths)) + 0.15


def test_short_rows_still_get_a_target():
    ids, starts, words = rows_of([3] * 1000)
    for unit, count in MODES:
        got = mask(ids, starts, words, MaskConfig(unit=unit, count=count))
        assert len(got.target_index) == 1000


def test_rows_of_special_tokens_alone_give_no_target():
    ids, starts = np.array([2, 3, 2, 3, 0]), np.array([0, 2, 5, 5])
    for unit, count in MODES:
        got = mask(ids, starts, np.ones(5, bool), MaskConfig(unit=unit, count=count))
        assert len(got.target_index) == 0
        assert np.array_equal(got.input_ids, ids)


def test_protected_tokens_are_never_chosen():
    ids, starts, words = rows_of([50] * 20)
    protected = np.random.default_rng(0).random(len(ids)) < 0.5
    for unit, count in MODES:
        got = mask(ids, starts, words, MaskConfig(unit=unit, count=count, rate=0.9), protected_T=protected)
        assert not protected[got.target_index].any()


def test_a_random_token_is_the_original_as_often_as_chance_has_it():
    ids, starts, words = rows_of([1002] * 500)
    got = mask(ids, starts, words, MaskConfig(mask_share=0.0, random_share=1.0, rate=0.5))
    same = (got.input_ids[got.target_index] == got.target_ids).mean()
    chance = 1 / len(VOCABULARY.drawable)
    assert abs(same - chance) < 4 * np.sqrt(chance / len(got.target_index))


@pytest.mark.parametrize(("unit", "count"), MODES)
def test_every_ordinary_token_is_drawn_equally_often(unit, count):
    ids, starts, words = rows_of([502] * 1000)
    got = mask(ids, starts, words, MaskConfig(unit=unit, count=count, rate=0.3))
    drawn = got.input_ids[got.target_index[got.target_kind == RANDOM]]
    counts = np.bincount(drawn, minlength=VOCAB_SIZE)[~SPECIAL]
    expected = len(drawn) / len(counts)
    spread = ((counts - expected) ** 2 / expected).sum()  # chi-squared, as many degrees as tokens
    assert abs(spread - len(counts)) < 5 * np.sqrt(2 * len(counts))


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("token", [2, *range(10, 27), 4, 4, 29, 3]),
        ("word", [2, *range(10, 27), 4, 4, 4, 3]),
        ("span", [2, 85, 27, 16, 57, 90, 43, 21, *range(17, 28), 4, 29, 3]),
    ],
)
def test_masks_stay_the_same_from_version_to_version(unit, expected):
    """A run that goes on under another version must meet the masks it would have met."""
    ids, words = np.array([2, *range(10, 30), 3]), np.array([True, *[True, False, True] * 7])
    vocabulary = Vocabulary(MASK_ID, ~SPECIAL[:100], np.arange(5, 100))
    keys = row_keys(np.array([3]), 7, 2)
    config = MaskConfig(unit=unit, rate=0.3)
    targets = mask_tokens(ids, np.array([0, 22]), keys, vocabulary, config, rate=0.3, starts_word_T=words)
    ids[targets.index] = targets.new_ids
    assert ids.tolist() == expected


def test_other_epochs_and_seeds_mask_otherwise():
    ids, starts, _ = rows_of([128] * 8)
    config = MaskConfig()
    keys = [row_keys(np.arange(8), seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    masks = [mask_tokens(ids, starts, key, VOCABULARY, config, rate=0.15).index.tolist() for key in keys]
    assert masks[0] != masks[1] != masks[2] != masks[0]


def test_a_schedule_of_rates_does_not_fill_memory():
    from data_pipelines.masks.units.span import start_rate

    for step in range(50):
        start_rate(0.1 + step / 1000, MaskConfig(unit="span"))
    assert start_rate.cache_info().currsize <= 8


@pytest.mark.parametrize("mean", [0.5, float("nan")])
def test_a_span_is_at_least_one_token_long_in_the_mean(mean):
    with pytest.raises(ValueError, match="span_mean must be at least 1"):
        MaskConfig(span_mean=mean)
