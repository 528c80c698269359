"""The masking unit "span": runs of geometric length that start anywhere."""

from functools import lru_cache

import numpy as np

from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.keyed import fold, mix, threshold, token_bits
from data_pipelines.masks.units.unit import Arrivals, Unit

# T tokens in the batch, W longest span, E tokens and W-1 places before each row

_LENGTH = np.uint64(fold(0, 0))


def _arrivals(keys_R, row_starts, maskable_T, starts_word_T, config) -> Arrivals:
    """For every token the smallest arrival among the spans that cover it.

    A span may start at any position, also up to W-1 before the row, so that the first tokens of a row are covered as
    often as the others. A special token inside a span cuts it.
    """
    before = config.span_max - 1
    borders = np.arange(len(row_starts)) * before
    bits_E = token_bits(keys_R, row_starts + borders, first_position=-before)
    length_bits_E = mix(bits_E ^ _LENGTH)
    here_T = np.arange(row_starts[-1]) + np.repeat(borders[1:], row_starts[1:] - row_starts[:-1])
    arrival_T = bits_E[here_T]
    for distance in range(1, config.span_max):
        start_T = here_T - distance
        candidate_T = bits_E[start_T]
        reaches_T = length_bits_E[start_T] < threshold(_survival(distance, config.span_mean))
        np.copyto(arrival_T, candidate_T, where=reaches_T & (candidate_T < arrival_T))
    return Arrivals(arrival_T, bits_E[here_T], None)


def _survival(distance: int, mean: float) -> float:
    """P(length > distance) of a geometric length on 1, 2, ... with the given mean."""
    return (1 - 1 / mean) ** distance


@lru_cache(maxsize=8)
def start_rate(rate: float, config: MaskConfig) -> float:
    """How often a span must start at a position to make each token a target with probability `rate`.

    A token is covered unless every start that could reach it fails: rate = 1 - prod(1 - q * P(length > distance)),
    solved for q by bisection.
    """
    low, high = 0.0, rate
    for _ in range(60):
        q = (low + high) / 2
        missed = np.prod([1 - q * _survival(distance, config.span_mean) for distance in range(config.span_max)])
        low, high = (low, q) if 1 - missed > rate else (q, high)
    return high


def coverage(start_rate, config: MaskConfig):
    """How often a token is a target where spans start at this rate."""
    missed = 1.0
    for distance in range(config.span_max):
        missed = missed * (1 - start_rate * _survival(distance, config.span_mean))
    return 1 - missed


SPAN = Unit(_arrivals, start_rate=start_rate, coverage=coverage)
