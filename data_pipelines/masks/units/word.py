"""The masking unit "word": all tokens of a word are chosen together."""

from data_pipelines.masks.units.unit import Arrivals, Unit, arrivals_of_runs


def _arrivals(keys_R, row_starts, maskable_T, starts_word_T, config) -> Arrivals:
    assert starts_word_T is not None
    return arrivals_of_runs(starts_word_T, keys_R, row_starts, maskable_T)


WORD = Unit(_arrivals, needs_words=True)
