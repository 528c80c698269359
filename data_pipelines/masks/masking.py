"""Which tokens are targets, and their new ids: a pure function of token ids and row keys, in numpy.

Every token gets 64 random bits from its row's key and its position. What is chosen as a whole, a *unit*, shares one
number, its *arrival*: a token its own bits, a word the bits of its first token, a span the bits of its start. Choosing
is then one rule for all units: arrivals below a bound (Bernoulli), or the smallest few in a row (exact). The leading
bits of an arrival decide whether a unit is chosen, its trailing 32 bits what happens to the target, so a word is
masked, replaced or kept as a whole.

A row with anything to choose gets a target (`at_least_one`), which raises the rate of short rows: of 8 tokens at 15%,
27% of the rows would have none. A word or span that is added weighs more than a token, so short rows choose the other
words and spans at a lower rate, by as much as the added one brings, and a span that is added is a single token.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.keyed import below, fold, mix, threshold
from data_pipelines.masks.units import UNITS
from data_pipelines.vocab.vocabulary import Vocabulary, look_up

# T tokens in the batch, R rows, M targets, V vocabulary

MASKED, RANDOM, KEPT = 0, 1, 2

_OFTEN_EMPTY = 0.05
"""A row that would have no target with more than this probability is short."""
_32 = np.uint64(32)
_ROUNDING = np.uint64(fold(0, 1))


@dataclass(slots=True)
class Targets:
    """The targets and what replaces them."""

    index: np.ndarray
    """(M,) where the targets are, ascending."""
    ids: np.ndarray
    """(M,) the tokens there."""
    new_ids: np.ndarray
    """(M,) what replaces them."""
    is_unmasked: np.ndarray
    """(M,) whether a target was replaced at random or kept, not masked."""
    is_kept: np.ndarray
    """(M,) whether a target was kept."""

    @property
    def kind(self) -> np.ndarray:
        """(M,) MASKED, RANDOM or KEPT."""
        return self.is_unmasked.view(np.uint8) + self.is_kept


def mask_tokens(
    ids_T: np.ndarray,
    row_starts: np.ndarray,
    keys_R: np.ndarray,
    vocabulary: Vocabulary,
    config: MaskConfig,
    *,
    rate: float | np.ndarray,
    protected_T: np.ndarray | None = None,
    starts_word_T: np.ndarray | None = None,
) -> Targets:
    """Choose targets in every row, and what replaces them.

    `row_starts` holds R+1 borders; `rate` is that of all rows, or one for each; `protected_T` marks further tokens
    never to choose; `starts_word_T` marks the first token of each word, for units that need words.
    """
    if isinstance(rate, np.ndarray):
        return _mask_row_by_row(ids_T, row_starts, keys_R, vocabulary, config, rate, protected_T, starts_word_T)
    maskable_T = look_up(vocabulary.maskable_V, ids_T)
    if protected_T is not None:
        maskable_T &= ~protected_T
    unit = UNITS[config.unit]
    arrival_T, bits_T, first_of_unit_T = unit.arrivals(keys_R, row_starts, maskable_T, starts_word_T, config)
    order_T, at_least = arrival_T, int(config.at_least_one and rate > 0)
    if config.count == "exact":
        chosen_T = _smallest_in_each_row(arrival_T, maskable_T, first_of_unit_T, row_starts, keys_R, rate, at_least)
    else:
        unit_rate = unit.start_rate(rate, config) if unit.start_rate else rate
        chosen_T = arrival_T < threshold(unit_rate)
        chosen_T &= maskable_T
        if at_least and unit.holds_several:
            counted_R = row_sums(_counted(maskable_T, first_of_unit_T), row_starts)
            short_R = counted_R < _enough_units(unit_rate)
            if short_R.any():
                lengths = row_starts[1:] - row_starts[:-1]
                bounds = _short_row_bounds(rate, config)
                bound_R = np.where(short_R, bounds[np.minimum(counted_R, len(bounds) - 1)], threshold(1.0))
                chosen_T &= arrival_T < bound_R.repeat(lengths)
                if unit.coverage is not None:
                    np.copyto(order_T := arrival_T.copy(), bits_T, where=short_R.repeat(lengths))
    target_index = _with_every_row(chosen_T, order_T, maskable_T, row_starts) if at_least else chosen_T.nonzero()[0]
    target_ids = ids_T[target_index]
    action = arrival_T[target_index] << _32
    is_unmasked = action >= threshold(config.mask_share)
    is_kept = action >= threshold(config.mask_share + config.random_share)

    new_ids = np.where(is_unmasked, target_ids, vocabulary.mask_id)
    replaced = (is_unmasked ^ is_kept).nonzero()[0]
    # Leading bits chose the target and trailing bits its fate; the remainder of the division is independent of both.
    draws = below(bits_T[target_index[replaced]], len(vocabulary.drawable))
    new_ids[replaced] = vocabulary.drawable[draws]
    return Targets(target_index, target_ids, new_ids, is_unmasked, is_kept)


def _mask_row_by_row(ids_T, row_starts, keys_R, vocabulary, config, rates_R, *marks_T) -> Targets:
    """Each row as it would be masked alone, with the rate of its own."""
    found = []
    for row, (start, end) in enumerate(itertools.pairwise(row_starts.tolist())):
        protected, starts_word = (None if marks is None else marks[start:end] for marks in marks_T)
        targets = mask_tokens(
            ids_T[start:end],
            np.array([0, end - start]),
            keys_R[row : row + 1],
            vocabulary,
            config,
            rate=float(rates_R[row]),
            protected_T=protected,
            starts_word_T=starts_word,
        )
        targets.index += start
        found.append(targets)
    names = Targets.__dataclass_fields__
    return Targets(**{name: np.concatenate([getattr(targets, name) for targets in found]) for name in names})


def _enough_units(unit_rate: float) -> int:
    """How many units a row needs in order to have a target nearly always; a row with fewer is short."""
    return 1 if unit_rate >= 1 else math.ceil(math.log(_OFTEN_EMPTY) / math.log1p(-unit_rate))


@lru_cache(maxsize=64)
def _short_row_bounds(rate: float, config: MaskConfig) -> np.ndarray:
    """For rows of 0, 1, 2 … units, as far as such rows are short, the bound of arrivals at which `rate` of the tokens
    become targets, the added ones included; 0 where the added one alone is more."""
    unit = UNITS[config.unit]
    highest = unit.start_rate(rate, config) if unit.start_rate else rate
    units = np.arange(_enough_units(highest))
    low, high = np.zeros(len(units)), np.full(len(units), highest)
    for _ in range(60):
        middle = (low + high) / 2
        above = _share_with_added(middle, units, config) > rate
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.array([threshold(bound) for bound in low], np.uint64)


def _share_with_added(unit_rate, num_units, config):
    """The share of a row's tokens that become targets where units are chosen at this rate, and one more in a row that
    would have none."""
    coverage = UNITS[config.unit].coverage
    share = unit_rate if coverage is None else coverage(unit_rate, config)
    # Nothing is chosen if the first unit is not covered and no other one starts.
    empty = (1 - unit_rate) ** np.maximum(num_units - 1, 0) * (1 - share)
    return share + empty / np.maximum(num_units, 1)


def expected_targets(
    ids_T: np.ndarray,
    row_starts: np.ndarray,
    vocabulary: Vocabulary,
    config: MaskConfig,
    rate: float,
    starts_word_T=None,
) -> np.ndarray:
    """(R,) how many targets each row has in the mean."""
    maskable_T = look_up(vocabulary.maskable_V, ids_T)
    keys_R = np.zeros(len(row_starts) - 1, np.uint64)
    units = UNITS[config.unit].arrivals(keys_R, row_starts, maskable_T, starts_word_T, config)
    num_units_R = row_sums(_counted(maskable_T, units.first_of_unit_T), row_starts)
    return _expected_share(num_units_R, config, rate) * row_sums(maskable_T, row_starts)


def _expected_share(num_units_R: np.ndarray, config: MaskConfig, rate: float) -> np.ndarray:
    """Of the tokens of rows that have so many units."""
    num_units_R = np.maximum(num_units_R, 1)
    unit, one = UNITS[config.unit], 1 / num_units_R
    if not config.at_least_one or not rate:
        return np.full(len(num_units_R), rate)
    if config.count == "exact":
        return np.maximum(rate, one)
    if not unit.holds_several:
        return _share_with_added(rate, num_units_R, config)
    # The whole span that is added to a longer row, in less than one of twenty, is counted as one token.
    unit_rate = unit.start_rate(rate, config) if unit.start_rate else rate
    long_R = _share_with_added(unit_rate, num_units_R, config)
    return np.where(num_units_R < _enough_units(unit_rate), np.maximum(rate, one), long_R)


def _counted(maskable_T, first_of_unit_T):
    """What the units of a row are counted by: the first tokens of words, or tokens."""
    return maskable_T if first_of_unit_T is None else maskable_T & first_of_unit_T


def _smallest_in_each_row(arrival_T, maskable_T, first_of_unit_T, row_starts, keys_R, rate, at_least):
    """In each row the `rate * n` units of smallest arrival, where n is the number of the row's maskable units, and
    `at_least` so many.

    The count is rounded up or down at random, so that its mean is exact. Tokens and spans are counted in tokens (the
    last span is cut to fit), words in words (each word is equally likely, so tokens reach the rate in the mean).
    """
    lengths = row_starts[1:] - row_starts[:-1]
    counted_T = _counted(maskable_T, first_of_unit_T)
    counted_R = row_sums(counted_T, row_starts)
    rounding_R = mix(keys_R ^ _ROUNDING) / 2.0**64
    wanted_R = np.maximum(np.floor(rate * counted_R + rounding_R).astype(np.int64), np.minimum(counted_R, at_least))

    # One sort orders all rows at once: the row number stands above the arrival's leading bits.
    order_T = np.repeat(np.arange(len(lengths), dtype=np.uint64) << np.uint64(40), lengths)
    order_T |= arrival_T >> np.uint64(24)
    ordered = np.sort(order_T[counted_T])
    rows = np.flatnonzero(wanted_R)
    last_R = np.zeros(len(lengths), np.uint64)
    last_R[rows] = ordered[(np.cumsum(counted_R) - counted_R + wanted_R - 1)[rows]]
    last_T = np.repeat(last_R, lengths)
    chosen_T = maskable_T & (order_T <= last_T)
    chosen_T &= np.repeat(wanted_R > 0, lengths)
    if first_of_unit_T is None:
        # Tokens of one span have the same arrival: of the last span only as many are taken as are still wanted. Which
        # ones is random; otherwise the ends of a row, which are ends of spans, would be chosen more often.
        surplus_R = row_sums(chosen_T, row_starts) - wanted_R
        if surplus_R.any():
            tied = np.flatnonzero(chosen_T & (order_T == last_T))
            row_of_tied = np.searchsorted(row_starts, tied, side="right") - 1
            first, last = (np.searchsorted(row_of_tied, row_of_tied, side=side) for side in ("left", "right"))
            turn = (mix(arrival_T[tied] ^ _ROUNDING) % (last - first).astype(np.uint64)).astype(np.int64)
            turned = (np.arange(len(tied)) - first + turn) % (last - first)
            chosen_T[tied[turned < surplus_R[row_of_tied]]] = False
    return chosen_T


def _with_every_row(chosen_T, arrival_T, maskable_T, row_starts):
    """The chosen positions; a row with none gets its unit of smallest arrival, if it has any."""
    index = chosen_T.nonzero()[0]
    reached = index.searchsorted(row_starts)
    empty_R = reached[1:] == reached[:-1]
    if not len(empty_R.nonzero()[0]):
        return index
    candidates = (maskable_T & empty_R.repeat(row_starts[1:] - row_starts[:-1])).nonzero()[0]
    if len(candidates):
        reached = candidates.searchsorted(row_starts)
        count_R = reached[1:] - reached[:-1]
        arrival = arrival_T[candidates]
        smallest = np.minimum.reduceat(arrival, reached[:-1][count_R > 0])
        chosen_T[candidates[arrival == smallest.repeat(count_R[count_R > 0])]] = True
    return chosen_T.nonzero()[0]


def row_sums(flags_T: np.ndarray, row_starts: np.ndarray) -> np.ndarray:
    """(R,) how many flags of each row are true."""
    totals = np.zeros(len(flags_T) + 1, np.int64)
    np.cumsum(flags_T, out=totals[1:])
    return totals[row_starts[1:]] - totals[row_starts[:-1]]
