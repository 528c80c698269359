"""Fine-tuning resumes to the same bits, and only what it began."""

import shutil

import pytest
import torch
from grammar import write_conll
from runs import start
from tuning import arguments, final_state, run, run_until, scores

import bertkit
from bertkit.finetune import train
from bertkit.model import MaskedLM
from bertkit.model.initialization import fill
from bertkit.run.ranks import wrap

torch.set_num_threads(1)


def test_a_kill_in_either_seed_does_not_change_the_result(undisturbed, home, tmp_path):
    folder = tmp_path / "run"
    for seed, step in ((0, 7), (0, 14), (1, 2), (1, 11)):
        run_until(step, home, folder, "run.seeds=[0,1]", seed=seed)
    assert run(home, folder, "run.seeds=[0,1]") == 0
    assert [final_state(folder, seed) for seed in (0, 1)] == [final_state(undisturbed, seed) for seed in (0, 1)]


def test_a_run_of_shards_begins_with_an_outline(undisturbed, home, tmp_path, monkeypatch):
    """Without FSDP: the outline is filled where it would be sharded, so that bits can be compared."""

    def wrapped(accelerator, model, *rest):
        assert all(param.is_meta for param in model.parameters())
        return wrap(accelerator, fill(model), *rest)

    monkeypatch.setattr(train, "is_sharded", lambda accelerator: True)
    monkeypatch.setattr(train, "wrap", wrapped)
    assert run(home, tmp_path / "run", "run.seeds=[0]") == 0
    assert final_state(tmp_path / "run") == final_state(undisturbed)


def test_a_seed_can_be_added_and_the_others_stay(home, tmp_path, undisturbed):
    assert run(home, tmp_path / "run", "run.seeds=[1]") == 0
    assert run(home, tmp_path / "run", "run.seeds=[1,0]") == 0
    assert final_state(tmp_path / "run", 1) == final_state(undisturbed, 1)
    assert final_state(tmp_path / "run", 0) == final_state(undisturbed, 0)


def test_two_processes_end_in_the_same_bits(undisturbed, home, tmp_path):
    folder = tmp_path / "run"
    started = start(["finetune", *arguments(home, folder, "run.seeds=[0]")], ranks=2, log=tmp_path / "log.txt")
    assert started.wait() == [0, 0], started.said()
    assert final_state(folder) == final_state(undisturbed)
    assert scores(folder)["seeds"][0]["dev"]["f1"] == scores(undisturbed)["seeds"][0]["dev"]["f1"]


def test_a_finished_run_changes_nothing(undisturbed, home, capsys):
    before = final_state(undisturbed)
    assert run(home, undisturbed, "run.seeds=[0,1]") == 0
    assert final_state(undisturbed) == before
    told = capsys.readouterr()
    assert "mean of 2 seeds" in told.out
    assert f"{undisturbed} is finished: seeds 0, 1; the model is in {undisturbed / 'export'}" in told.err


def test_a_run_with_a_seed_to_train_is_not_called_finished(undisturbed, home, tmp_path, capsys):
    shutil.copytree(undisturbed, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "seed-1")
    assert run(home, tmp_path / "run", "run.seeds=[0,1]") == 0
    assert "is finished" not in capsys.readouterr().err


def test_another_number_of_threads_is_told_once_and_only_if_there_are_steps(
    undisturbed, home, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    assert run(home, undisturbed, "run.seeds=[0,1]") == 0
    assert "64" not in capsys.readouterr().err
    shutil.copytree(undisturbed, tmp_path / "run")
    for seed in (0, 1):
        shutil.rmtree(tmp_path / "run" / f"seed-{seed}")
    assert run(home, tmp_path / "run", "run.seeds=[0,1]") == 0
    assert capsys.readouterr().err.count("resumes with 64") == 1


def test_an_encoder_reads_the_sentences_before_it_learns_and_resumes_in_both(home, tmp_path):
    adapting = ("train.adapt_steps=4", "train.epochs=2")
    assert run(home, tmp_path / "whole", *adapting) == 0
    encoder, adapted = (bertkit.load(path) for path in (home / "encoder", tmp_path / "whole" / "adapted"))
    assert isinstance(adapted, MaskedLM)
    assert not torch.equal(encoder.encoder.tokens.weight, adapted.encoder.tokens.weight)
    for step in (2, 6):  # the first is one of adapting
        run_until(step, home, tmp_path / "killed", *adapting)
    assert run(home, tmp_path / "killed", *adapting) == 0
    assert final_state(tmp_path / "killed") == final_state(tmp_path / "whole")
    run(home, tmp_path / "not", "train.epochs=2")
    assert final_state(tmp_path / "not") != final_state(tmp_path / "whole")


def test_several_processes_are_told_to_adapt_first(home, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="adapt_steps"):
        run(home, tmp_path / "run", "train.adapt_steps=2")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("optim.lr=0.5", "optim.lr: 0.02 -> 0.5"),
        ("data.pieces=mean", "data.pieces"),
        ("data.train_share=0.5", "data.train_share"),
    ],
)
def test_another_recipe_in_the_folder_is_refused_by_name(undisturbed, home, change, complaint):
    with pytest.raises(ValueError, match="holds a run of another recipe") as caught:
        run(home, undisturbed, "run.seeds=[0,1]", change)
    assert complaint in str(caught.value)


def test_changed_data_is_refused_by_name(home, undisturbed, tmp_path):
    other = write_conll(tmp_path / "other.conll", 41, seed=3)
    with pytest.raises(ValueError, match="the labeled data changed since"):
        run(home, undisturbed, "run.seeds=[0,1]", f"data.train={other}")
