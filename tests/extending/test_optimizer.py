"""An optimizer of a user's own (toys/sgd.py) is a value of optim.name like any other, its state saved with the rest."""

import json
from functools import partial

from runs import final_state, kill_before_step, newest

CHANGES = ("optim.name=sgd", "optim.lr=0.3", "train.steps=8", "run.save_every=3")


def test_it_trains_and_resumes_in_the_same_bits(bertkit, home, tmp_path):
    bertkit("sgd", *home.argv(tmp_path / "whole", *CHANGES))
    losses = [json.loads(line).get("loss") for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    bertkit("sgd", *home.argv(tmp_path / "run", *CHANGES), before=partial(kill_before_step, 5), exits=-9)
    assert newest(tmp_path / "run") == 3
    bertkit("sgd", *home.argv(tmp_path / "run", *CHANGES))
    assert final_state(tmp_path / "run", 8) == final_state(tmp_path / "whole", 8)


def test_without_the_plugin_the_name_is_refused(bertkit, home, tmp_path):
    said = bertkit("", *home.argv(tmp_path / "run", "optim.name=sgd"), exits=2)
    assert "optim.name" in said
    assert "'sgd'" in said
