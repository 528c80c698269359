"""A pretraining objective of a user's own (toys/replaced_tokens.py) is a value of train.objective like any other."""

import json
import math
from functools import partial

import pytest
from grammar import write_conll
from runs import final_state, kill_before_step

STEPS = 40
CHANGES = ("train.objective=replaced-tokens", f"train.steps={STEPS}", "mask.rate=0.5")


@pytest.fixture
def trained(bertkit, home, tmp_path):
    bertkit("replaced_tokens", *home.argv(tmp_path / "whole", *CHANGES))
    return tmp_path / "whole"


def test_it_is_learnt_and_resumes_in_the_same_bits(trained, bertkit, home, tmp_path):
    losses = [json.loads(line)["loss"] for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert losses[0] == pytest.approx(math.log(2), abs=1e-3)
    assert losses[-1] < 0.95 * losses[0]
    argv = home.argv(tmp_path / "run", *CHANGES, "run.num_workers=1")
    bertkit("replaced_tokens", *argv, before=partial(kill_before_step, 12), exits=-9)
    bertkit("replaced_tokens", *argv)
    assert final_state(tmp_path / "run", STEPS) == final_state(trained, STEPS)


def test_its_encoder_is_exported_and_fine_tuned(trained, bertkit, tmp_path):
    labeled = write_conll(tmp_path / "train.conll", count=10)
    changes = (f"model.init={trained}", f"data.train={labeled}", "train.epochs=1", f"run.dir={tmp_path / 'tagger'}")
    bertkit("", "finetune", "ner", *changes)


def test_without_the_plugin_the_name_is_refused(bertkit, home, tmp_path):
    said = bertkit("", *home.argv(tmp_path / "run", *CHANGES), exits=2)
    assert "train.objective" in said
    assert "'replaced-tokens'" in said
