"""A masking unit is one row of a table: added from outside, it works by its name; a name nobody added is refused."""

import pickle

import numpy as np
import pytest

from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.units import UNITS
from data_pipelines.masks.units.unit import Unit, arrivals_of_runs

PLAIN = {"mask_id": 4, "vocab_size": 100, "special_ids": range(5), "seed": 0, "return_tensors": "np"}


def pair_arrivals(keys_R, row_starts, maskable_T, starts_word_T, config):
    place_T = np.arange(len(maskable_T)) - np.repeat(row_starts[:-1], np.diff(row_starts))
    return arrivals_of_runs(place_T % 2 == 1, keys_R, row_starts, maskable_T)


@pytest.fixture
def pairs(monkeypatch):
    monkeypatch.setattr(UNITS, "_rows", dict(UNITS._rows))
    UNITS.add("pair", Unit(pair_arrivals))


@pytest.mark.parametrize("count", ["bernoulli", "exact"])
@pytest.mark.usefixtures("pairs")
def test_a_unit_from_outside_masks_by_its_name(count):
    config = MaskConfig(unit="pair", count=count, rate=0.3)
    plain = {name: value for name, value in PLAIN.items() if name != "seed"}
    collator = MaskingCollator.from_config(None, config, seed=0, **plain)
    labels = collator([[2, *range(10, 50), 3]] * 50)["labels"]
    chosen = labels[:, 1:-1].reshape(50, 20, 2) >= 0
    assert (chosen[..., 0] == chosen[..., 1]).all()
    assert 0.2 < chosen.mean() < 0.4


@pytest.mark.usefixtures("pairs")
def test_a_unit_from_outside_travels_to_loader_workers():
    collator = MaskingCollator(**PLAIN, unit="pair")
    again = pickle.loads(pickle.dumps(collator))
    rows = [[2, *range(10, 50), 3]] * 8
    assert (again(rows)["labels"] == collator(rows)["labels"]).all()


@pytest.mark.parametrize("make", [lambda unit: MaskConfig(unit=unit), lambda unit: MaskingCollator(**PLAIN, unit=unit)])
def test_a_unit_nobody_added_is_refused_by_name(make):
    with pytest.raises(ValueError, match=r"unit.*token, word, span.*'wrod'"):
        make("wrod")


@pytest.mark.parametrize("name", list(UNITS))
def test_every_unit_can_travel(name):
    assert pickle.loads(pickle.dumps(UNITS[name])) == UNITS[name]
