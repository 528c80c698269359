"""A label format of a user's own (toys/slashed.py) is read wherever labeled sentences are."""

import json
import random

from grammar import tagged_sentence


def write_slashed(path, count, seed):
    rng = random.Random(seed)
    pairs = [zip(*tagged_sentence(rng)[:2], strict=True) for _ in range(count)]
    path.write_text("\n".join(" ".join(f"{word}/{tag}" for word, tag in sentence) for sentence in pairs) + "\n")
    return path


def test_it_is_learnt_from(bertkit, tmp_path):
    train, dev = (write_slashed(tmp_path / f"{seed}.pos", 60, seed) for seed in range(2))
    run = tmp_path / "run"
    bertkit("slashed", "finetune", "pos", f"data.train={train}", f"data.dev={dev}", "train.epochs=2", f"run.dir={run}")
    scores = json.loads((run / "scores.json").read_text())
    assert set(scores["seeds"][0]["dev"]["tags"]) == {"ADJ", "ADP", "DET", "NOUN", "PROPN", "PUNCT", "VERB"}


def test_what_is_wrong_with_it_is_told_with_its_line(bertkit, tmp_path):
    train = write_slashed(tmp_path / "train.pos", 5, 0)
    dev = tmp_path / "dev.pos"
    dev.write_text("anna/PROPN\nthe/DET ?/UNHEARD\n")
    changes = (f"data.train={train}", f"data.dev={dev}", "train.epochs=1", f"run.dir={tmp_path / 'run'}")
    said = bertkit("slashed", "finetune", "pos", *changes)
    assert f"{dev}:2" in said
    assert "'UNHEARD'" in said
