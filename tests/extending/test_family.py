"""An encoder family of a user's own (toys/averager.py) is trained, resumed, exported, loaded and fine-tuned."""

import json
from functools import partial

import pytest
from grammar import write_conll
from runs import final_state, kill_before_step

STEPS = 30


@pytest.fixture
def argv(home):
    def make(folder, *changes):
        given = home.argv(folder, "model.architecture=averager", f"train.steps={STEPS}", *changes)
        return [word for word in given if "dropout" not in word]

    return make


@pytest.fixture
def trained(argv, bertkit, tmp_path):
    bertkit("averager", *argv(tmp_path / "whole"))
    return tmp_path / "whole"


def test_it_is_pretrained_and_resumes_in_the_same_bits(trained, argv, bertkit, tmp_path):
    losses = [json.loads(line)["loss"] for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < 0.9 * losses[0]
    bertkit("averager", *argv(tmp_path / "run"), before=partial(kill_before_step, 12), exits=-9)
    bertkit("averager", *argv(tmp_path / "run"))
    assert final_state(tmp_path / "run", STEPS) == final_state(trained, STEPS)


def test_it_is_exported_loaded_and_trained_on(trained, argv, home, bertkit, tmp_path):
    export = str(tmp_path / "export")
    bertkit("averager", "export", str(trained), export)
    assert json.loads((tmp_path / "export" / "config.json").read_text())["model_type"] == "averager"
    assert "averager" in bertkit("averager", "info", export).lower()
    bertkit("averager", "fill", "--model", export, "anna paints the [MASK]")
    bertkit("averager", "evaluate", export, str(home.corpus))
    bertkit("averager", "report", str(trained))
    continued = ("data.corpus=" + str(home.corpus), f"data.cache_dir={home.cache}", f"model.init={export}")
    bertkit("averager", "pretrain", "continued", *continued, "train.steps=1", f"run.dir={tmp_path / 'continued'}")


@pytest.mark.parametrize("recipe", ["ner", "text-classification"])
def test_it_is_fine_tuned_and_used_to_tag(recipe, trained, bertkit, tmp_path):
    tagger, labeled = str(tmp_path / "tagger"), tmp_path / "train.conll"
    if recipe == "ner":
        write_conll(labeled, count=20)
    else:
        labeled = tmp_path / "train.jsonl"
        labeled.write_text('{"text": "the old house", "label": "old"}\n{"text": "the new house", "label": "new"}\n')
    changes = (f"data.train={labeled}", f"model.init={trained}", "train.epochs=2", f"run.dir={tagger}")
    bertkit("averager", "finetune", recipe, *changes)
    (tmp_path / "new.txt").write_text("anna paints the old house\n")
    said = bertkit("averager", "tag", "--model", tagger, str(tmp_path / "new.txt"), "--output", "jsonl")
    assert '"tags"' in said


def test_what_it_does_not_have_is_told(trained, bertkit):
    assert "attention" in bertkit("averager", "attention", "--model", str(trained), "anna paints", exits=2)


def test_without_the_plugin_it_is_refused_and_taken_for_no_other(trained, argv, bertkit, tmp_path):
    assert "'averager'" in bertkit("", *argv(tmp_path / "run"), exits=2)
    assert "'averager'" in bertkit("", "info", str(trained), exits=2)
