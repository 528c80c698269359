"""The masking unit "token": every token is chosen by itself."""

from data_pipelines.masks.keyed import token_bits
from data_pipelines.masks.units.unit import Arrivals, Unit


def _arrivals(keys_R, row_starts, maskable_T, starts_word_T, config) -> Arrivals:
    bits_T = token_bits(keys_R, row_starts)
    return Arrivals(bits_T, bits_T, None)


TOKEN = Unit(_arrivals, holds_several=False)
