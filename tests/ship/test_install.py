"""The installation without torch that the README shows, into an empty environment, from the package registry."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from shipped import generated_sentences, save_tagger
from small_model import save_small_model
from tiny import TINY

from bertkit.cli import main
from bertkit.ship.export import export_onnx

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch.set_num_threads(1)
ROOT = Path(__file__).parent.parent.parent
COMMAND = "pip install --no-deps . onnxruntime tokenizers numpy"


def test_the_readmes_show_the_command():
    for name in ("README.md", "README.zh-CN.md"):
        page = (ROOT / "bertkit" / "ship" / name).read_text(encoding="utf-8")
        assert re.findall(r"pip install --no-deps \.[\w ]*", page) == [COMMAND]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder with the commands of the new environment."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"  # a build leaves folders beside the code
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("bertkit", "data_pipelines", "recipes"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "empty")], check=True)
    commands = folder / "empty" / "bin"
    reached = pip(commands, f"download -q --no-deps --retries=0 --timeout=10 -d {folder} flatbuffers", folder)
    if reached.returncode:
        pytest.skip(f"NOT TESTED: the package registry cannot be reached ({reached.stderr.strip()[-200:]})")
    done = pip(commands, COMMAND.removeprefix("pip "), source)
    assert done.returncode == 0, done.stderr
    return commands


def pip(commands: Path, arguments: str, folder: Path) -> subprocess.CompletedProcess:
    """Our pip for the new environment, whose own would take longer to install than all the rest."""
    command = [sys.executable, "-m", "pip", "--python", commands / "python", *arguments.split()]
    environment = os.environ | {"PIP_NO_COMPILE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_nothing_but_four_packages_is_there_and_tag_fill_and_evaluate_work(installed, tmp_path, capsys):
    listed = pip(installed, "list --format=freeze", tmp_path).stdout
    names = {line.partition("==")[0] for line in listed.splitlines()}
    assert names == {"bertkit", "onnxruntime", "tokenizers", "numpy"}
    text = tmp_path / "text.txt"
    text.write_text("\n".join(generated_sentences(40)), encoding="utf-8")
    export_onnx(save_tagger(tmp_path / "tagger", TINY), tmp_path / "tagger-onnx")
    save_small_model(tmp_path / "lm", text, vocab_size=200, positions=32)
    export_onnx(tmp_path / "lm", tmp_path / "lm-onnx")
    (tmp_path / "gold.conll").write_text("Anna\tB-PER\npaints\tO\n")
    for verb, model, more in (
        ("tag --model", "tagger", [str(text)]),
        ("evaluate", "tagger", [str(tmp_path / "gold.conll"), "--json"]),
        ("fill --model", "lm", ["the old [MASK] near the station"]),
        ("evaluate", "lm", [str(text), "--seq-len", "32", "--words", "10"]),
    ):
        assert main([*verb.split(), str(tmp_path / model), *more]) == 0
        expected = capsys.readouterr().out
        command = [installed / "bertkit", *verb.split(), tmp_path / f"{model}-onnx", *more]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert _words(done.stdout) == _words(expected)


def _words(output):
    """Without calibration, whose error is a sum of floats in another order."""
    return re.sub(r'"calibration": \{.*?\}[^}]*\}', "", output, flags=re.DOTALL).split()
