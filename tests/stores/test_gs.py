"""Rows, runs and models on Google Cloud Storage are those of the disk.

An emulator on this machine stands in for it. Without the driver and the emulator (`make test-gs`) nothing is shown.
"""

import hashlib
import socket
from pathlib import Path

import pytest
from grammar import write_corpus
from runs import SMALL

from bertkit.cli import main

HOW = "is not installed, so gs:// was not tried: make test-gs"
pytest.importorskip("gcsfs", reason=f"gcsfs {HOW}")
emulator = pytest.importorskip("gcp_storage_emulator.server", reason=f"gcp-storage-emulator {HOW}")
ROWS = ["--tokenizer", "tokenizer", "--seq-len", "16", "--shard-tokens", "700", "--out"]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with an empty bucket, and a text in the folder where the test runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # asks a service that the emulator does not have
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "text.txt", count=100)
    with emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket") as server:
        yield server


def train(rows: str, folder: str, *changes: str) -> int:
    shape = [change for change in SMALL if not change.startswith(("data.", "tokenizer."))]
    places = [f"data.prepared={rows}", f"run.dir={folder}", "data.mix_shards=2", "train.steps=6"]
    return main(["pretrain", "bert-mini", *shape, *places, "model.embeddings=random", *changes])


def weights(folder: str) -> str:
    return hashlib.sha256(Path(folder, "export", "model.safetensors").read_bytes()).hexdigest()


def test_rows_runs_and_models_on_gs_are_those_of_the_disk(store, capfd):
    import fsspec

    assert main(["tokenizer", "train", "--corpus", "text.txt", "--vocab-size", "160", "--out", "tokenizer"]) == 0
    gs = fsspec.filesystem("gs")
    gs.pipe_file("bucket/text/text.txt", Path("text.txt").read_bytes())
    assert main(["prepare", "--corpus", "gs://bucket/text/", *ROWS, "gs://bucket/rows"]) == 0
    assert main(["prepare", "--corpus", "text.txt", *ROWS, "rows"]) == 0
    for path in Path("rows").glob("*.tokens"):
        assert gs.cat_file(f"bucket/rows/{path.name}") == path.read_bytes()
    assert train("gs://bucket/rows", "there", "run.mirror=gs://bucket/runs/one") == train("rows", "here") == 0
    assert weights("there") == weights("here")
    assert gs.cat_file("bucket/runs/one/export/config.json") == Path("here/export/config.json").read_bytes()
    assert main(["export", "here", "gs://bucket/models/one"]) == 0
    capfd.readouterr()
    answers = []
    for model in ("gs://bucket/models/one", "here"):
        assert main(["fill", "the [MASK]", "--model", model, "--json", "-"]) == 0
        answers.append(capfd.readouterr().out)
    assert answers[0] == answers[1]


def test_what_is_not_there_is_named(store, capfd):
    for name in ("gs://bucket/absent.txt", "gs://bukcet/text.txt"):
        assert main(["corpus", "report", "--corpus", name]) == 2
        assert f"there is no file, folder or bucket '{name}'" in capfd.readouterr().err
