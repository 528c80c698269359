"""A file that would run code is refused unopened, wherever it is put; the code it carries never runs."""

import hashlib
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from machine import cpu_seconds
from runs import start
from small_model import save_small_model

import bertkit
from bertkit.cli import main
from bertkit.run.checkpoint import checkpoints, load_newest


class Planted:
    """Whoever unpickles it makes the canary."""

    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self):
        return (Path.touch, (self.canary,))


def bare_pickle(path: Path, canary: Path) -> None:
    path.write_bytes(pickle.dumps(Planted(canary)))


def torch_file(path: Path, canary: Path) -> None:
    torch.save({"weight": torch.ones(2), "planted": Planted(canary)}, path)


def old_torch_file(path: Path, canary: Path) -> None:
    torch.save({"planted": Planted(canary)}, path, _use_new_zipfile_serialization=False)


def numpy_file(path: Path, canary: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, np.array([Planted(canary)], dtype=object), allow_pickle=True)


FORMS = (bare_pickle, torch_file, old_torch_file, numpy_file)
MODEL_FILES = ("pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.safetensors")


@pytest.fixture
def canary(tmp_path) -> Path:
    return tmp_path / "canary"


@pytest.fixture(scope="module")
def whole(home, tmp_path_factory) -> Path:
    """A small model with its tokenizer."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    return save_small_model(folder, home.corpus, vocab_size=120, positions=64)


@pytest.fixture
def model(whole, tmp_path) -> Path:
    import shutil

    return shutil.copytree(whole, tmp_path / "model")


@pytest.mark.parametrize("form", FORMS)
def test_the_planted_files_really_run_code(form, tmp_path, canary):
    """Without this the tests below would show nothing."""
    path = tmp_path / "planted"
    form(path, canary)
    if form is numpy_file:
        np.load(path, allow_pickle=True)
    else:
        torch.load(path, weights_only=False) if form is not bare_pickle else pickle.loads(path.read_bytes())
    assert canary.exists()


@pytest.mark.parametrize("name", MODEL_FILES)
@pytest.mark.parametrize("form", FORMS)
def test_a_model_that_is_a_pickle_is_refused_in_under_a_second(model, canary, tried, name, form):
    """Row 17: the folder and the file itself, whatever the name says."""
    (model / "model.safetensors").unlink()
    form(model / name, canary)
    begin = cpu_seconds()
    for place in (model, model / name):
        with pytest.raises(ValueError):
            bertkit.load(place)
        tried()
    assert cpu_seconds() - begin < 1
    assert not canary.exists()


VERBS = {
    "info": ["info", "MODEL"],
    "fill": ["fill", "--model", "MODEL", "anna [MASK] the house"],
    "import": ["import", "MODEL", "NEW"],
    "export": ["export", "MODEL", "NEW"],
    "tag": ["tag", "--model", "MODEL", "CORPUS"],
    "evaluate": ["evaluate", "MODEL", "CORPUS"],
    "attention": ["attention", "--model", "MODEL", "--out", "NEW", "anna paints"],
    "report": ["report", "MODEL"],
    "pretrain": ["pretrain", "continued", "model.init=MODEL", "data.corpus=CORPUS", "run.dir=NEW", "data.seq_len=32"],
    "finetune": ["finetune", "ner", "model.init=MODEL", "data.train=TAGGED", "run.dir=NEW"],
}


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_opens_a_pickle(home, model, canary, tmp_path, monkeypatch, tried, capsys, verb, name):
    """Row 17: one line and exit code 2."""
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    (model / "model.safetensors").unlink()
    torch_file(model / name, canary)
    (tmp_path / "tagged.conll").write_text("anna\tB-PER\n")
    places = {"MODEL": model, "NEW": tmp_path / "new", "CORPUS": home.corpus, "TAGGED": tmp_path / "tagged.conll"}
    argv = []
    for word in VERBS[verb]:
        for key, place in places.items():
            word = word.replace(key, str(place))
        argv.append(word)
    assert main(argv) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("bertkit: ")
    assert not canary.exists()
    tried()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_a_pickle_in_the_place_of_json_is_refused(model, canary, tried, capsys, name):
    """Row 17: beside good weights."""
    bare_pickle(model / name, canary)
    assert main(["fill", "--model", str(model), "anna [MASK] the house"]) == 2
    assert name in capsys.readouterr().err
    assert not canary.exists()
    tried()


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**40, 200_000_000, 10**6])
def test_an_oversized_header_is_refused_in_under_a_second(model, tried, size):
    """Row 17: before memory is taken for it."""
    (model / "model.safetensors").write_bytes(size.to_bytes(8, "little") + b"{}" + bytes(1000))
    begin = cpu_seconds()
    with pytest.raises(ValueError, match="safetensors"):
        bertkit.load(model)
    assert cpu_seconds() - begin < 1
    tried()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_pickle_in_a_checkpoint_is_passed_over(at_step_10, canary, tried, caplog, name, form):
    """Row 17: even where whoever planted it wrote its sha256 into the manifest."""
    _, newest = checkpoints(at_step_10 / "checkpoints")[-1]
    form(newest / name, canary)
    data = (newest / name).read_bytes()
    manifest = json.loads((newest / "manifest.json").read_bytes())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    (newest / "manifest.json").write_text(text)
    loaded = load_newest(at_step_10 / "checkpoints")
    assert loaded is not None
    assert loaded.step == 5
    assert name in caplog.text
    assert not canary.exists()
    tried()


def test_a_checkpoint_that_remembers_strange_things_is_refused(home, at_step_10, tried):
    """Row 17: keys and values that no run writes, under a manifest that fits them."""
    for state in ('{"step": 10, "surprise": 1}', '{"step": "ten"}', "[]", "7", '{"step": 10, "seconds": {}}'):
        for _, folder in checkpoints(at_step_10 / "checkpoints"):
            (folder / "state.json").write_text(state)
            manifest = json.loads((folder / "manifest.json").read_bytes())
            entry = {"bytes": len(state), "sha256": hashlib.sha256(state.encode()).hexdigest()}
            manifest["files"]["state.json"] = entry
            text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
            (folder / "manifest.json").write_text(text)
        run = start(home.argv(at_step_10), log=at_step_10.with_name("strange.log"))
        assert run.wait() == [2], (state, run.said())
        assert "Traceback" not in run.said()
        tried()


@pytest.mark.parametrize("name", ["corpus.pkl", "corpus.pt", "corpus.bin", "corpus.txt", "corpus.jsonl", "corpus.csv"])
@pytest.mark.parametrize("form", [bare_pickle, torch_file])
def test_a_pickle_is_no_corpus(tmp_path, canary, tried, capsys, name, form):
    """Row 17: refused by its name or by its bytes."""
    form(tmp_path / name, canary)
    argv = ["tokenizer", "train", "--corpus", str(tmp_path / name), "--out", str(tmp_path / "tokenizer")]
    assert main(argv) == 2
    assert name in capsys.readouterr().err
    assert not canary.exists()
    tried()


@pytest.mark.parametrize("kind", ["script", "pickle", "tar", "zip"])
def test_a_dataset_folder_runs_no_code_and_is_not_unpacked(tmp_path, canary, tried, capsys, kind):
    """Row 17: as a corpus and as labeled data."""
    folder = tmp_path / "planted"
    folder.mkdir()
    if kind == "script":
        (folder / "planted.py").write_text(f"import pathlib\npathlib.Path({str(canary)!r}).touch()\n")
    elif kind == "pickle":
        bare_pickle(folder / "train.pkl", canary)
    else:
        with zipfile.ZipFile(folder / f"train.{kind}", "w") as archive:
            archive.writestr("train.txt", "anna paints")
    tokenizer = ["tokenizer", "train", "--corpus", f"hf:{folder}", "--out", str(tmp_path / "tokenizer")]
    tagger = ["finetune", "ner", f"data.train={folder}", f"run.dir={tmp_path / 'run'}"]
    for argv in (tokenizer, tagger):
        assert main(argv) == 2, argv
        assert "Traceback" not in capsys.readouterr().err
        assert not canary.exists()
        tried()


def test_a_recipe_runs_no_code(tmp_path, canary, tried, capsys):
    """Row 17: YAML can name Python objects; ours cannot."""
    for tag in ("!!python/object/apply:pathlib.Path.touch", "!!python/object/new:pathlib.Path"):
        (tmp_path / "planted.yaml").write_text(f"data:\n  corpus: {tag} [{canary}]\n")
        for verb in ("pretrain", "finetune"):
            assert main([verb, str(tmp_path / "planted.yaml"), "--print-config"]) == 2
            assert "planted.yaml is not YAML" in capsys.readouterr().err
            tried()
    assert not canary.exists()
