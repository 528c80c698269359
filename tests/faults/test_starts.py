"""Ranks that were started differently, runs whose checkpoints are gone, folders that are somebody else's."""

import json
import os
import shutil
import signal
from functools import partial

import pytest
import torch
from grammar import write_corpus
from runs import EVERY, STEPS, final_state, kill_before_step, run_code, start
from telling import tells

from bertkit.cli import main
from bertkit.config.recipe import read_recipe
from bertkit.run.folder import check_recipe, write_recipe

DIFFERENT = {
    "optim.lr": "0.004",
    "run.seed": "1",
    "train.steps": "61",
    "train.clip_norm": "0.5",
    "train.micro_batch": "2",
    "optim.betas": "[0.9,0.99]",
    "optim.weight_decay": "0.1",
    "optim.warmup": "0.1",
    "optim.schedule": "cosine",
    "mask.rate": "0.2",
    "model.hidden_dropout_prob": "0.2",
    "model.num_hidden_layers": "3",
    "model.hidden_size": "32",
    "data.seq_len": "12",
    "data.validation_share": "0.2",
    "tokenizer.vocab_size": "150",
    "eval.every": "7",
    "run.save_every": "7",
}
EVERYDAY = {"optim.lr", "eval.every"}


@pytest.mark.parametrize("key", [k if k in EVERYDAY else pytest.param(k, marks=pytest.mark.faults) for k in DIFFERENT])
def test_ranks_that_were_started_differently_are_refused(home, tmp_path, tried, key):
    """Row 28: on every rank, with the key and both values, before any step."""
    argv = home.argv(tmp_path / "run")
    run = start(argv, ranks=2, last=(f"{key}={DIFFERENT[key]}",), log=tmp_path / "log")
    assert run.wait() == [2, 2], run.said()
    assert run.said().count(f"{key} is ") == 2
    assert "on rank 0 and" in run.said()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    tried()


@pytest.mark.parametrize(
    "names", [["ner"], pytest.param(["ner", "bert-mini", "modernbert-mini"], marks=pytest.mark.faults)]
)
def test_every_key_that_ranks_have_unlike_is_named(tmp_path, tried, names):
    """Row 28: every key of a recipe, but those that say where things lie and how a rank reads and logs."""
    code = f"import disagreeing, torch; disagreeing.main({names!r}); torch.distributed.destroy_process_group()"
    first, last = json.loads(run_code(code, tmp_path, ranks=2, seconds=1200)[0].splitlines()[-1])
    assert len(first) > 40 * len(names)
    for named, message in first.items():
        key = named.partition(" ")[2]
        assert tells(message, f"{key} is … on rank 0 and … on rank 1"), named
        assert last[named] == message
        tried()


@pytest.mark.parametrize("what", ["data.corpus", "the precision", pytest.param("the code", marks=pytest.mark.faults)])
def test_ranks_with_other_data_or_code_are_refused(home, tmp_path, tried, what):
    """Row 28: by their fingerprints, wherever they lie."""
    other = write_corpus(tmp_path / "text.txt", count=80)
    last = (f"data.corpus={other}",) if what == "data.corpus" else ()
    before = {"the code": be_another_version, "the precision": take_another_precision}.get(what)
    run = start(home.argv(tmp_path / "run"), ranks=2, last=last, before=before, log=tmp_path / "log")
    assert run.wait() == [2, 2], run.said()
    assert run.said().count(f"{what} is ") == 2
    tried()


def test_a_rank_that_comes_late_takes_the_start_of_the_first_for_no_other_run(home, tmp_path, tried):
    """Row 28: at the meeting both are told. The first rank tries whether checkpoints can be written."""
    _, name, *changes = home.argv(tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for path in (checkpoints / ".writable", checkpoints / "..writable.tmp", tmp_path / "run" / ".lock"):
        path.touch()
    write_recipe(tmp_path / "run", read_recipe(name, changes))
    check_recipe(tmp_path / "run", read_recipe(name, [*changes, "optim.lr=0.004"]))
    (checkpoints / "step-00000005").mkdir()
    with pytest.raises(ValueError, match="another recipe"):
        check_recipe(tmp_path / "run", read_recipe(name, [*changes, "optim.lr=0.004"]))
    tried()


def be_another_version() -> None:
    """Let each rank have a version of its own."""
    from bertkit.run import start

    start._code_version = lambda: os.environ["RANK"]


def take_another_precision() -> None:
    """Let the ranks have devices of two kinds, as train.precision=auto sees them."""
    from bertkit.run import ranks

    ranks._has_bf16 = lambda: os.environ["RANK"] == "1"


def two_threads_for_a_step() -> None:
    """Threads that share busy cores wait for each other for minutes, so the run is ended soon."""
    torch.set_num_threads(2)
    kill_before_step(11)


def test_another_number_of_threads_on_a_resume_is_told(home, at_step_10, tried):
    """Row 35: with both numbers, and how to keep the bits."""
    run = home.start(at_step_10, f"train.steps={STEPS}", before=two_threads_for_a_step)
    run.wait()
    assert "began with 1 threads and resumes with 2" in run.said()
    assert "OMP_NUM_THREADS=1" in run.said()
    tried()


def test_another_precision_on_a_resume_is_told(home, at_step_10, tried):
    """Row 35: train.precision=auto takes what the device has, which may be another one."""
    path = at_step_10 / "run.json"
    facts = json.loads(path.read_text())
    assert facts["precision"] == "fp32"
    path.write_text(json.dumps({**facts, "precision": "bf16"}))
    run = home.start(at_step_10, f"train.steps={STEPS}", before=partial(kill_before_step, 11))
    run.wait()
    assert "began in bf16 and resumes in fp32" in run.said()
    tried()


@pytest.mark.parametrize("how", ["deleted", "linked", "folder deleted", "folder emptied"])
def test_a_run_whose_checkpoints_are_gone_is_refused(home, expected, at_step_10, tmp_path, tried, how):
    """Row 29: it never starts over silently; run.restart=true says otherwise."""
    checkpoints = at_step_10 / "checkpoints"
    for path in list(checkpoints.glob("step-*")):
        moved = shutil.move(path, tmp_path / path.name)
        if how == "linked":
            path.symlink_to(moved)
    if how.startswith("folder"):
        shutil.rmtree(checkpoints)
    if how == "folder emptied":
        checkpoints.mkdir()
    before = (at_step_10 / "metrics.jsonl").read_bytes()
    run = home.start(at_step_10)
    assert run.wait() == [2], run.said()
    assert "run.restart=true" in run.said()
    assert (at_step_10 / "metrics.jsonl").read_bytes() == before
    if how == "deleted":
        home.finish(at_step_10, "run.restart=true")
        assert final_state(at_step_10) == expected
    tried()


def test_a_run_killed_before_its_first_checkpoint_starts_over(home, tmp_path, tried):
    """Row 29: there is nothing to lose."""
    run = home.start(tmp_path / "run", f"train.steps={EVERY}", before=partial(kill_before_step, EVERY - 1))
    assert run.wait() == [-signal.SIGKILL]
    home.finish(tmp_path / "run", f"train.steps={EVERY}")
    tried()


@pytest.mark.parametrize("name", ["recipe.yaml", ".bashrc", "thesis.tex", ".git"])
def test_a_folder_with_other_things_is_refused_and_stays(home, tmp_path, tried, capsys, name):
    """Row 30: hidden files count, and a recipe.yaml that no run wrote is not overwritten."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name).write_text("base: bert-mini\n")
    assert main(home.argv(folder)) == 2
    assert str(folder) in capsys.readouterr().err
    assert {path.name: path.read_text() for path in folder.iterdir()} == {name: "base: bert-mini\n"}
    tried()


def test_a_users_own_recipe_beside_other_files_is_not_overwritten(home, tmp_path, tried, capsys):
    """Row 30: even where it says what the run would say."""
    folder = tmp_path / "mine"
    folder.mkdir()
    assert main([*home.argv(folder), "--print-config"]) == 0
    text = "# my notes\n" + capsys.readouterr().out
    (folder / "recipe.yaml").write_text(text)
    (folder / "my.txt").write_text("x\n")
    assert main(home.argv(folder)) == 2
    assert (folder / "recipe.yaml").read_text() == text
    tried()
