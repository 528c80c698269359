"""Arms with one seed differ in what they say alone; an ablation resumes, compares in pairs and ends sure losers."""

import json
import math

import numpy as np
import pytest
from grammar import write_corpus

from bertkit.cli import main
from bertkit.pretrain import ablate as ablating
from bertkit.pretrain.ablate import _losers, paired, plan_ablation, read_arms
from bertkit.report.ablation_page import write_ablation_page

SMALL = [
    *("model.hidden_size=16", "model.num_hidden_layers=1", "model.num_attention_heads=2", "model.intermediate_size=32"),
    *("tokenizer.vocab_size=100", "data.seq_len=16", "data.validation_share=0.2", "run.num_workers=0"),
    *("train.steps=2", "train.global_batch=4", "train.micro_batch=4", "run.log_every=1"),
]


def test_keys_with_several_values_make_arms():
    common, arms = read_arms(["train.steps=5", "optim.lr=[1e-3, 2e-3]", "mask.unit=[token,word]", "data.corpus=[a,b]"])
    assert common == ["train.steps=5", "data.corpus=[a,b]"]
    assert [arm.name for arm in arms] == [
        "optim.lr=1e-3, mask.unit=token",
        "optim.lr=1e-3, mask.unit=word",
        "optim.lr=2e-3, mask.unit=token",
        "optim.lr=2e-3, mask.unit=word",
    ]
    assert [arm.changes for arm in read_arms(["data.corpus=[[a],[a,b]]"])[1]] == [
        ("data.corpus=[a]",),
        ("data.corpus=[a,b]",),
    ]


@pytest.mark.parametrize(
    "changes", [["train.steps=5"], ["optim.lr=[1e-3]"], ["optim.lr=[1e-3,1e-3]"], ["optim.lr=[,]"]]
)
def test_what_makes_no_arms_is_refused(changes):
    with pytest.raises(ValueError, match=r"several|the same"):
        read_arms(changes)


def test_differences_are_paired_with_students_interval():
    found = paired([0.1, 0.2, 0.3])
    spread = 4.303 * 0.1 / math.sqrt(3)
    assert (found["mean"], found["low"], found["high"]) == pytest.approx((0.2, 0.2 - spread, 0.2 + spread))
    assert paired([0.5]) == {"mean": 0.5, "low": None, "high": None}
    assert paired([]) is None
    draws = np.random.default_rng(0).normal(size=41)
    wide = paired(list(draws))
    assert (wide["high"] - wide["mean"]) == pytest.approx(2.0211 * draws.std(ddof=1) / math.sqrt(41), rel=1e-4)


def test_only_what_surely_loses_ends_early():
    losses = {"best": [3.0, 3.2], "worse": [3.5, 3.701], "close": [3.1, 3.5], "once": [9.0]}
    found = {name: {seed: {"loss": loss} for seed, loss in enumerate(runs)} for name, runs in losses.items()}
    assert set(_losers(found)) == {"worse"}
    assert _losers({"a": {0: {"loss": 1.0}}, "b": {0: {"loss": 2.0}}}) == {}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text.txt", count=60)


def argv(corpus, folder, *changes, seeds=2):
    places = [f"data.corpus={corpus}", f"data.cache_dir={corpus.parent / 'cache'}"]
    return ["ablate", "bert-mini", *places, *SMALL, *changes, "--out", str(folder), "--seeds", str(seeds)]


def test_arms_share_rows_and_masks_and_the_same_command_resumes(corpus, tmp_path, capsys, monkeypatch):
    words = argv(corpus, tmp_path / "out", "optim.lr=[1e-9,3e-3]")
    assert main([*words, "--json", str(tmp_path / "facts.json")]) == 0
    printed = capsys.readouterr()
    assert "optim.lr=3e-3" in printed.out
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert [arm["name"] for arm in facts["arms"]] == ["optim.lr=1e-9", "optim.lr=3e-3"]
    assert facts["budget"] == ["steps=2"]
    folders = [
        tmp_path / "out" / name / f"seed-{seed}" for name in ("optim.lr=1e-9", "optim.lr=3e-3") for seed in (0, 1)
    ]
    first = [json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])["loss"] for folder in folders]
    # The first step is taken before the arms differ: one seed has the same weights, rows and masks in both.
    assert first[0] == first[2]
    assert first[1] == first[3]
    assert first[0] != first[1]
    score = facts["arms"][1]["scores"]["loss"]
    runs = [[arm["runs"][str(seed)]["loss"] for seed in (0, 1)] for arm in facts["arms"]]
    assert score["difference"]["mean"] == pytest.approx(np.mean(np.subtract(runs[1], runs[0])))
    page = (tmp_path / "out" / "ablation.html").read_text()
    assert "optim.lr=3e-3" in page

    facts["arms"][1]["ended_early"] = "its <loss>"
    changes = [f"data.corpus={corpus}", *SMALL, "optim.lr=[1e-9,3e-3]"]
    write_ablation_page(plan_ablation("bert-mini", changes, 2, tmp_path / "out"), facts, tmp_path / "page.html")
    assert "its &lt;loss&gt;" in (tmp_path / "page.html").read_text()
    facts["arms"][1]["ended_early"] = None

    def never(recipe):
        raise AssertionError(f"{recipe.run.dir} was trained again")

    with open(folders[0] / "metrics.jsonl", "a") as file:
        file.write('{"kind": "tra')  # as a kill leaves it
    monkeypatch.setattr("bertkit.pretrain.train.pretrain", never)
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == facts


def test_a_stopped_run_stops_the_ablation_and_losers_get_no_further_seed(corpus, tmp_path, capsys, monkeypatch):
    trained: list[str] = []
    monkeypatch.setattr("bertkit.pretrain.train.pretrain", lambda recipe: trained.append(recipe.run.dir) or 130)
    assert main(argv(corpus, tmp_path / "out", "optim.lr=[1e-9,3e-3]")) == 130
    assert len(trained) == 1

    trained.clear()
    monkeypatch.setattr("bertkit.pretrain.train.pretrain", lambda recipe: trained.append(recipe.run.dir) or 0)
    monkeypatch.setattr(ablating, "_losers", lambda found: {"optim.lr=1e-9": "it lost"})
    changes = [f"data.corpus={corpus}", *SMALL, "optim.lr=[1e-9,3e-3]"]
    code, ended = ablating.ablate(plan_ablation("bert-mini", changes, 3, tmp_path / "other"))
    assert (code, ended) == (0, {"optim.lr=1e-9": "it lost"})
    assert [sum("1e-9" in folder for folder in trained), len(trained)] == [1, 4]
    assert "it lost" in capsys.readouterr().err


def test_a_loss_that_measures_something_else_is_not_compared(corpus, tmp_path):
    objectives = "train.objective=[masked-lm,replaced-token-detection,diffusion]"
    assert main([*argv(corpus, tmp_path / "out", objectives, seeds=1), "--json", str(tmp_path / "facts.json")]) == 0
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert ["loss" in arm["scores"] for arm in facts["arms"]] == [True, False, True]
    assert all("steps" in arm["runs"]["0"] for arm in facts["arms"])
    assert "random tokens detected" in facts["notes"][0]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["optim.lr=[1e-3,fast]"], "optim.lr"),
        (["optim.lrr=[1,2]"], "optim.lr"),
        (["optim.lr=[1e-3,2e-3]", "run.seed=3"], "--seeds"),
        (["optim.lr=[1e-3,2e-3]", "run.dir=x"], "--out"),
        (["optim.lr=1e-3"], "several values"),
        (["optim.lr=[1e-3,2e-3]", "--seeds", "0"], "--seeds"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(corpus, tmp_path, capsys, changes, told):
    assert main([*argv(corpus, tmp_path / "out"), *changes]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
