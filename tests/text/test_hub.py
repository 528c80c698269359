"""`hf:NAME` is a model wherever a folder is; without a network it ends soon, with what to do instead."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from grammar import write_conll, write_corpus
from small_model import save_small_model

import bertkit
from bertkit.cli import main
from bertkit.config.finetune import read_finetune_recipe
from bertkit.config.recipe import read_recipe
from bertkit.finetune.train import finetune
from bertkit.model import TokenTagger
from bertkit.pretrain.train import pretrain
from data_pipelines.vocab.tokenizer import load_tokenizer

torch.set_num_threads(1)
NAME = "somebody/small-bert"


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text") / "text.txt", count=40)


@pytest.fixture
def downloaded(text, tmp_path, monkeypatch) -> Path:
    """A model that the hub's cache holds already, on a machine without a network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    folder = cached / "snapshots" / commit
    return save_small_model(folder, text, vocab_size=130, positions=32)


def test_pretraining_goes_on_from_a_name_as_from_its_folder(downloaded, text, tmp_path):
    exports = []
    for place, init in (("by-name", f"hf:{NAME}"), ("by-folder", str(downloaded))):
        changes = [f"data.corpus={text}", f"model.init={init}", f"run.dir={tmp_path / place}", "train.steps=1"]
        small = ["data.seq_len=32", "train.global_batch=4", "tokenizer.extend=5", "run.num_workers=0"]
        assert pretrain(read_recipe("continued", [*changes, *small])) == 0
        exports.append((tmp_path / place / "export" / "model.safetensors").read_bytes())
    assert exports[0] == exports[1]


def test_pretraining_goes_on_from_a_run_as_from_its_export(downloaded, text, tmp_path):
    shutil.copytree(downloaded, tmp_path / "first" / "export")
    changes = [f"data.corpus={text}", f"model.init={tmp_path / 'first'}", f"run.dir={tmp_path / 'second'}"]
    small = ["train.steps=0", "data.seq_len=32", "tokenizer.extend=0", "run.num_workers=0"]
    assert pretrain(read_recipe("continued", [*changes, *small])) == 0
    before, after = (bertkit.load(tmp_path / run).state_dict() for run in ("first", "second"))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_new_model_may_have_the_tokenizer_of_a_name(downloaded, text, tmp_path):
    changes = [f"data.corpus={text}", f"tokenizer.path=hf:{NAME}", f"run.dir={tmp_path / 'run'}", "train.steps=0"]
    small = ["model.hidden_size=16", "model.intermediate_size=16", "data.seq_len=32", "run.num_workers=0"]
    assert pretrain(read_recipe("bert-tiny", [*changes, *small])) == 0
    assert load_tokenizer(tmp_path / "run" / "export").fingerprint == load_tokenizer(downloaded).fingerprint


@pytest.mark.parametrize("key", ["init", "like"])
def test_fine_tuning_begins_with_a_name_or_shaped_like_one(downloaded, key, tmp_path):
    changes = [f"data.train={write_conll(tmp_path / 'train.conll', 4)}", f"model.{key}=hf:{NAME}", "train.epochs=1"]
    assert finetune(read_finetune_recipe("ner", [*changes, f"run.dir={tmp_path / 'run'}"])) == 0
    assert isinstance(bertkit.load(tmp_path / "run"), TokenTagger)


def test_verbs_take_a_name(downloaded, text, capsys):
    for words in (
        ["info", f"hf:{NAME}"],
        ["fill", "--model", f"hf:{NAME}", "the [MASK]"],
        ["evaluate", f"hf:{NAME}", str(text), "--words", "0", "--max-rows", "2", "--seq-len", "32"],
    ):
        assert main(words) == 0, capsys.readouterr().err


def test_a_name_of_nobody_is_refused_by_pretraining_and_fine_tuning(downloaded, text, tmp_path, capsys):
    run = f"run.dir={tmp_path / 'run'}"
    labeled = write_conll(tmp_path / "train.conll", 4)
    for words in (
        ["pretrain", "continued", f"data.corpus={text}", "model.init=hf:nobody/nothing", run],
        ["finetune", "ner", f"data.train={labeled}", "model.init=hf:nobody/nothing", run],
        ["evaluate", "hf:nobody/nothing", str(text)],
    ):
        assert main(words) == 2
        assert "hf download nobody/nothing --local-dir DIR" in capsys.readouterr().err
    assert main(["pretrain", "continued", f"data.corpus={text}", "model.init=nobody/nothing", run]) == 2
    assert "hf:OWNER/NAME" in capsys.readouterr().err


def test_a_hub_name_without_a_network_ends_soon_with_the_local_alternative(tmp_path):
    """Also with the explicit prefix, where there is no network: nobody listens on the port it is sent to."""
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    for name in ("nobody/no-such-model", "hf:nobody/no-such-model"):
        command = [sys.executable, "-m", "bertkit", "info", name]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=140)
        assert done.returncode == 2
        assert "hf download nobody/no-such-model --local-dir DIR" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_hub_that_accepts_and_stays_silent_is_given_up(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = os.environ | {
            "HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "0",
        }
        command = [sys.executable, "-m", "bertkit", "info", "hf:nobody/no-such-model"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 2
    assert "hf download nobody/no-such-model --local-dir DIR" in done.stderr
    assert "Traceback" not in done.stderr
