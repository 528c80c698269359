"""A masking unit: tokens are chosen in pairs of neighbors."""

import numpy as np

from data_pipelines.masks.units import UNITS
from data_pipelines.masks.units.unit import Arrivals, Unit, arrivals_of_runs


def arrivals(keys_R, row_starts, maskable_T, starts_word_T, config) -> Arrivals:
    position_T = np.arange(len(maskable_T)) - np.repeat(row_starts[:-1], np.diff(row_starts))
    return arrivals_of_runs(position_T % 2 == 0, keys_R, row_starts, maskable_T)


UNITS.add("pair", Unit(arrivals))
