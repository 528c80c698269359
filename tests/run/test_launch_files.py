"""The launch files for accelerate start what they say; on CPUs, as far as there are no GPUs, with the same result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from grammar import write_corpus
from machine import free_port
from runs import ROOT

from bertkit.config.recipe import read_recipe, shipped_recipes
from bertkit.pretrain.train import pretrain

torch.set_num_threads(1)
FOLDER = shipped_recipes()["bert-mini"].parent / "accelerate"
NAMES = ["ddp", "fsdp", "two-nodes"]
SMALL = [
    *("data.seq_len=32", "tokenizer.vocab_size=160", "train.steps=2", "train.global_batch=8", "train.micro_batch=4"),
    *("model.hidden_size=16", "model.num_hidden_layers=2", "model.intermediate_size=32", "run.num_workers=0"),
    "data.validation_share=0.2",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("launched")


@pytest.fixture(scope="module")
def changes(home) -> list[str]:
    return [f"data.corpus={write_corpus(home / 'text.txt', count=40)}", f"data.cache_dir={home / 'cache'}", *SMALL]


@pytest.fixture(scope="module")
def loss_of_one_process(home, changes) -> float:
    assert pretrain(read_recipe("bert-mini", [*changes, f"run.dir={home / 'alone'}"])) == 0
    return final_loss(home / "alone")


def final_loss(folder: Path) -> float:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return next(line["loss"] for line in lines if line["kind"] == "eval" and line["step"] == 2)


@pytest.mark.parametrize("name", NAMES)
def test_launch_files_are_what_accelerate_reads(name):
    from accelerate.commands.config.config_args import ClusterConfig

    path = FOLDER / f"{name}.yaml"
    config = ClusterConfig.from_yaml_file(yaml_file=str(path))
    assert config.num_processes == yaml.safe_load(path.read_text())["num_processes"]
    assert config.mixed_precision == "no", "the recipe decides the precision"


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_of_a_launch_file_train_as_one_does(name, home, changes, loss_of_one_process):
    command = [sys.executable, "-m", "accelerate.commands.launch", f"--config_file={FOLDER / name}.yaml"]
    command += ["--num_processes=2", f"--main_process_port={free_port()}"]
    machines = [["--main_process_ip=127.0.0.1", f"--machine_rank={rank}"] for rank in range(2)]
    training = ["-m", "bertkit", "pretrain", "bert-mini", *changes, f"run.dir={home / name}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    launched = [
        subprocess.Popen([*command, *machine, *training], env=environment, stderr=subprocess.PIPE, text=True)
        for machine in (machines if name == "two-nodes" else [[]])
    ]
    said = [process.communicate(timeout=280)[1] for process in launched]
    assert [process.returncode for process in launched] == [0] * len(launched), said
    assert "2 processes" in said[0]
    assert final_loss(home / name) == pytest.approx(loss_of_one_process, abs=1e-5)
