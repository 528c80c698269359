"""Models on S3: exported to it, opened from it, fetched anew when they change, refused when they are not whole."""

import json
from pathlib import Path

import pytest
from grammar import write_corpus
from runs import SMALL
from small_model import save_small_model

from bertkit.cli import main
from bertkit.hf.folder import resolve

URL = "s3://bucket/models/one"


@pytest.fixture
def exported(store, tmp_path):
    write_corpus(tmp_path / "text.txt", count=50)
    save_small_model(tmp_path / "model", tmp_path / "text.txt", vocab_size=160, positions=32)
    store.faults += ["503", "", "500", ""]
    assert main(["export", "model", URL]) == 0
    assert not store.faults
    return store


def test_an_exported_model_is_opened_from_its_url(exported, capsys):
    names = {name.removeprefix("models/one/") for name in exported.objects}
    assert names == {path.name for path in Path("model").iterdir()} | {"sha256.json"}
    exported.faults += ["cut", "", "503", ""]
    folder = resolve(URL)
    for name in names:
        assert (folder / name).read_bytes() == exported.objects[f"models/one/{name}"]
    capsys.readouterr()
    answers = []
    for model in (URL, "model"):
        assert main(["fill", "the [MASK]", "--model", model, "--json", "-"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert main(["export", "model", URL]) == 2
    assert "not empty" in capsys.readouterr().err


def test_a_model_is_fetched_once_for_each_version_of_it(exported):
    folder = resolve(URL)
    exported.asked.clear()
    assert resolve(URL) == folder
    assert not [name for name in exported.asked if name.endswith("safetensors")]
    name = "models/one/config.json"
    exported.objects[name] = json.dumps(json.loads(exported.objects[name]) | {"more": 1}).encode()
    with pytest.raises(ValueError, match=r"models/one/config\.json is damaged"):
        resolve(URL)
    del exported.objects["models/one/sha256.json"]
    assert resolve(URL) != folder
    with pytest.raises(ValueError, match="nothing"):
        resolve("s3://bucket/nothing")


def test_code_and_what_would_lie_elsewhere_is_not_fetched(exported):
    exported.objects |= {"models/one/modeling.py": b"", "models/one/pytorch_model.bin": b""}
    assert not [path for path in resolve(URL).iterdir() if path.suffix in (".py", ".bin")]
    exported.objects["models/one/../../outside"] = b"-"
    with pytest.raises(ValueError, match="outside"):
        resolve(URL)


def test_training_continues_with_a_model_of_a_url(exported, capfd):
    changes = [change for change in SMALL if not change.startswith(("model.", "tokenizer."))]
    places = ["data.corpus=text.txt", "run.dir=run", "train.steps=1", f"model.init={URL}"]
    assert main(["pretrain", "continued", *changes, *places]) == 0, capfd.readouterr().err
    assert Path("run/export/model.safetensors").is_file()
