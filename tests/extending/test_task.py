"""A fine-tuning task of a user's own (toys/multilabel.py) is trained, exported and used to tag."""

import json
import random

import pytest
from grammar import ADJECTIVES, NOUNS


def write_texts(path, count, seed):
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        chosen = [word for word in ADJECTIVES[:3] if rng.random() < 0.5] or ["old"]
        lines.append(json.dumps({"text": f"the {' '.join(chosen)} {rng.choice(NOUNS)}", "label": "+".join(chosen)}))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def argv(tmp_path):
    files = {part: write_texts(tmp_path / f"{part}.jsonl", 200, seed) for seed, part in enumerate(("train", "dev"))}
    return [
        *("finetune", "text-classification", "task=multilabel", f"run.dir={tmp_path / 'run'}"),
        *(f"data.{part}={path}" for part, path in files.items()),
        *("train.epochs=6", "optim.lr=0.003", "run.log_every=1"),
    ]


def test_it_is_learnt_reported_exported_and_used(argv, bertkit, tmp_path):
    run, export = str(tmp_path / "run"), str(tmp_path / "export")
    bertkit("multilabel", *argv)
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert scores["task"] == "multilabel"
    assert scores["dev"]["mean"] > 0.9 > scores["dev"]["baselines"]["majority tag"]["accuracy"]
    bertkit("multilabel", "report", run)
    bertkit("multilabel", "export", run, export)
    (tmp_path / "new.txt").write_text("the old quiet house\nthe yellow river\n")
    for model in (run, export):
        said = bertkit("multilabel", "tag", "--model", model, str(tmp_path / "new.txt"), "--output", "jsonl")
        tags = [json.loads(line)["tags"] for line in said.splitlines() if line.startswith("{")]
        assert tags == [["old+quiet"], ["yellow"]]


def test_without_the_plugin_the_name_is_refused(argv, bertkit):
    said = bertkit("", *argv, exits=2)
    assert "task" in said
    assert "'multilabel'" in said
