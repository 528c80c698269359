"""`hf:NAME` is a dataset of texts: streamed, known by its commit, and soon given up without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from machine import cpu_seconds

from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.hub import read_hub

TEXTS = ["plain words", "Größe 北京 😀", "x"]


def test_a_local_dataset_is_streamed(tmp_path):
    (tmp_path / "data").mkdir()
    lines = [json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)]
    (tmp_path / "data" / "train.jsonl").write_text("".join(lines))
    config = CorpusConfig(corpus=["hf:"])
    found = list(read_hub(f"{tmp_path / 'data'}", config))
    assert [piece.text for piece in found] == TEXTS
    assert found[1].place == f"hf:{tmp_path / 'data'}:row 2"
    with pytest.raises(ValueError, match="nowhere"):
        list(read_hub(f"{tmp_path / 'data'}:nowhere", config))
    with pytest.raises(ValueError, match=r"'body'.*id, text"):
        list(read_hub(f"{tmp_path / 'data'}", CorpusConfig(corpus=["hf:"], field="body")))


def test_the_commit_of_a_dataset_is_asked_of_the_hub(monkeypatch):
    import huggingface_hub

    from data_pipelines.text import hub

    def dataset_info(api, path, timeout):
        if path != "some/data":
            raise OSError("404")
        return SimpleNamespace(sha="c0ffee")

    monkeypatch.setattr(hub, "_check_hub_is_reachable", lambda: None)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    assert hub.hub_revision("some/data:train:en") == "c0ffee"
    with pytest.raises(ValueError, match=r"'other/data'.*OSError: 404"):
        hub.hub_revision("other/data")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert hub.hub_revision("some/data") is None


def test_a_dataset_on_the_hub_without_network_ends_at_once_with_one_line():
    code = """
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.text.corpus import read_documents
try:
    next(read_documents(CorpusConfig(corpus=["hf:nobody/nothing"])))
except ValueError as error:
    print(error)
"""
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    # Port 9 of this machine answers nobody.
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(Path.cwd())}
    began = cpu_seconds()
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240)
    assert cpu_seconds() - began < 30  # nearly all of it importing
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert "nobody/nothing" in done.stdout
    assert "Parquet or JSON Lines" in done.stdout
