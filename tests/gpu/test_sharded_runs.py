"""Runs under FSDP from start to export, with true numbers: accelerate's own branch, on processes of CPUs."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from gpu_step import LAUNCH_FILES
from grammar import write_conll, write_corpus
from runs import Home, kill_before_step, start
from safetensors.torch import load_file
from sharding import fsdp_environment, shard_on_cpus
from torch import Tensor

import bertkit
from bertkit.cli import main
from bertkit.run.checkpoint import checkpoints

torch.set_num_threads(1)
CHANGES = (
    *("train.steps=5", "run.save_every=2", "eval.every=2", "optim.name=muon", "train.average=0.4"),
    *("model.hidden_dropout_prob=0", "model.attention_probs_dropout_prob=0"),
)
SHARDED = partial(shard_on_cpus, fsdp_environment(LAUNCH_FILES / "fsdp.yaml"))


def killed_at(step: int) -> None:
    SHARDED()
    kill_before_step(step)


def eval_losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "eval"]


def assert_near(found: Path, wanted: Path) -> None:
    assert_near_weights(load_file(found), load_file(wanted))


def assert_near_weights(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Two models differ by what was rounded."""
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        # It adds the same to all scores of a query, so its gradient is nothing but what was rounded.
        if name.endswith("key.bias"):
            assert max(found[name].norm(), tensor.norm()) < 1e-5, name
            continue
        assert (found[name] - tensor).norm() <= 5e-6 * tensor.norm() + 1e-6, name


def as_trained(folder: Path, temperature: float) -> dict[str, Tensor]:
    """The exported weights, with the head as it was before it was divided by the temperature."""
    weights = load_file(folder / "export/model.safetensors")
    return {name: tensor * temperature if "classifier" in name else tensor for name, tensor in weights.items()}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    folder = tmp_path_factory.mktemp("home")
    return Home(write_corpus(folder / "text.txt", count=60), folder / "cache")


@pytest.fixture(scope="module")
def one(home, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("one") / "run"
    assert main(home.argv(folder, *CHANGES)) == 0
    return folder


def test_a_run_of_shards_evaluates_saves_resumes_and_exports_as_one_process_does(home, one, tmp_path):
    """An evaluation leaves weights gathered, and rounded in half precision: what is saved after it must be shards."""
    folder = tmp_path / "run"
    killed = home.start(folder, *CHANGES, ranks=2, before=partial(killed_at, 3))
    killed.wait()
    assert [step for step, _ in checkpoints(folder / "checkpoints")] == [2], killed.said()
    resumed = home.start(folder, *CHANGES, ranks=2, before=SHARDED)
    assert resumed.wait() == [0, 0], resumed.said()
    assert eval_losses(folder) == pytest.approx(eval_losses(one), rel=1e-6)
    for name in ("model", "optimizer"):
        paths = [checkpoints(path / "checkpoints")[-1][1] / f"{name}.safetensors" for path in (folder, one)]
        assert_near(*paths)
    assert_near(folder / "export/model.safetensors", one / "export/model.safetensors")
    assert bertkit.FillMask.load(folder)("the [MASK] .").text == bertkit.FillMask.load(one)("the [MASK] .").text


def test_fine_tuning_of_shards_scores_and_exports_as_one_process_does(one, tmp_path):
    """Evaluations in between, and the weights of the best step, which is not the last, put back at the end."""
    data = [f"data.{part}={write_conll(tmp_path / part, count)}" for part, count in (("train", 40), ("dev", 15))]
    rows = ["train.epochs=2", "train.global_batch=8", "train.micro_batch=4", "optim.lr=0.02", "optim.warmup=0"]
    folders = [tmp_path / name for name in ("one", "two")]
    argvs = [["finetune", "ner", *data, *rows, f"model.init={one}", f"run.dir={folder}"] for folder in folders]
    assert main(argvs[0]) == 0
    two = start(argvs[1], ranks=2, before=SHARDED, log=tmp_path / "log")
    assert two.wait() == [0, 0], two.said()
    wanted, found = (json.loads((folder / "scores.json").read_text())["seeds"][0] for folder in folders)
    assert found["step"] == wanted["step"] == 5, "the first of two evaluations"
    assert found["dev"]["f1"] == pytest.approx(wanted["dev"]["f1"])
    assert found["temperature"] == pytest.approx(wanted["temperature"], rel=1e-4)
    assert_near_weights(as_trained(folders[1], found["temperature"]), as_trained(folders[0], wanted["temperature"]))
