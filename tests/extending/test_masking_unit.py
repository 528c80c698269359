"""A masking unit of a user's own (toys/pair_unit.py) is a value of mask.unit like any other."""

import pytest
from runs import final_state

CHANGES = ("train.steps=4", "train.global_batch=4")


@pytest.fixture
def in_pairs(bertkit, home, tmp_path):
    bertkit("pair_unit", *home.argv(tmp_path / "pairs", "mask.unit=pair", *CHANGES))
    return tmp_path / "pairs"


def test_it_chooses_what_is_learned(in_pairs, bertkit, home, tmp_path):
    bertkit("", *home.argv(tmp_path / "tokens", *CHANGES))
    assert final_state(in_pairs, 4) != final_state(tmp_path / "tokens", 4)


@pytest.mark.parametrize("workers", ["fork", "spawn"])
def test_loader_workers_have_it(workers, in_pairs, bertkit, home, tmp_path):
    argv = home.argv(tmp_path / "run", "mask.unit=pair", "run.num_workers=1", *CHANGES)
    bertkit("pair_unit", *argv, workers=workers)
    assert final_state(tmp_path / "run", 4) == final_state(in_pairs, 4)


def test_every_rank_has_it(bertkit, home, tmp_path):
    bertkit("pair_unit", *home.argv(tmp_path / "run", "mask.unit=pair", *CHANGES), ranks=2)


def test_without_the_plugin_the_name_is_refused(bertkit, home, tmp_path):
    said = bertkit("", *home.argv(tmp_path / "run", "mask.unit=pair"), exits=2)
    assert "mask.unit" in said
    assert "'pair'" in said
