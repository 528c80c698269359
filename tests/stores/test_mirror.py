"""A run with a mirror: its checkpoints are on the store, and a run whose folder is gone resumes from there."""

import re
import shutil
import threading
from pathlib import Path

import pytest
from grammar import write_corpus
from runs import SMALL, final_state

from bertkit.cli import main
from bertkit.run import mirror as mirrors
from bertkit.run.mirror import Mirror

URL = "s3://bucket/runs/one"
STEPS = 8


def train(folder: str, *changes: str, mirror: str | None = URL) -> int:
    places = ["data.corpus=text.txt", f"run.dir={folder}"] + ([f"run.mirror={mirror}"] if mirror else [])
    steps = [f"train.steps={STEPS}", "run.save_every=2", "model.hidden_size=16", "model.intermediate_size=32"]
    return main(["pretrain", "bert-mini", *SMALL, *places, *steps, "model.embeddings=random", *changes])


@pytest.fixture
def text(store, tmp_path, monkeypatch):
    write_corpus(tmp_path / "text.txt", count=100)
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path.parent / "cache"))
    return store


def steps_on(store) -> set[str]:
    return {name.split("/")[3] for name in store.objects if name.startswith("runs/one/checkpoints/")}


def test_a_run_whose_folder_is_gone_resumes_from_its_mirror(text, stopped_after, capfd):
    """The store fails now and then. Weights, moments and metrics are those of a run that nothing disturbed."""
    assert train("undisturbed", mirror=None) == 0
    text.faults += ["503", "", "500", "", ""] * 3
    with stopped_after(5):
        assert train("run") == 143
    assert not text.faults
    assert steps_on(text) >= {"step-00000005"}
    shutil.rmtree("run")
    text.faults += ["cut", "", "503", ""]
    assert train("run") == 0
    assert "step 5 from s3://bucket/runs/one" in capfd.readouterr().err
    assert final_state(Path("run"), STEPS) == final_state(Path("undisturbed"), STEPS)
    kept = {path.name for path in Path("run/checkpoints").glob("step-*")}
    assert steps_on(text) <= kept
    assert "step-00000008" in steps_on(text)
    for path in Path("run/export").rglob("*"):
        assert text.objects[f"runs/one/{path.relative_to('run')}"] == path.read_bytes()
    steps = [line.count('"kind": "train"') for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert sum(steps) == STEPS


def test_a_damaged_copy_is_skipped_and_another_recipe_refused(text, stopped_after, capfd):
    with stopped_after(5):
        assert train("run") == 143
    assert train("other", "optim.lr=0.01") == 2
    assert "optim.lr" in (said := capfd.readouterr().err)
    assert URL in said
    newest = "runs/one/checkpoints/step-00000005/model.safetensors"
    text.objects[newest] = text.objects[newest][::-1]
    shutil.rmtree("run")
    assert train("run") == 0
    # Which one was copied before depends on how fast the store is.
    assert re.search("checkpoint of step [24] from", capfd.readouterr().err)


def test_a_store_that_fails_at_a_resume_is_no_damaged_copy(text, monkeypatch, stopped_after, capfd):
    with stopped_after(5):
        assert train("run") == 143
    shutil.rmtree("run")
    real = mirrors.fetch_file

    def failing(file, *rest):
        text.faults += ["500"] * 50
        real(file, *rest)

    monkeypatch.setattr(mirrors, "fetch_file", failing)
    assert train("run") == 75
    assert "step-00000005" in capfd.readouterr().err
    text.faults.clear()
    monkeypatch.setattr(mirrors, "fetch_file", real)
    assert train("run") == 0
    assert "step 5 from s3://bucket/runs/one" in capfd.readouterr().err


def test_a_failing_mirror_lets_the_run_finish_and_is_told(text, monkeypatch, capfd, caplog):
    """The same command copies what the store lacks."""
    real, broken = mirrors.put_folder, True

    def put_folder(*arguments, **options):
        if broken:
            raise ValueError("s3://bucket/runs/one: failed 5 times (503)")
        real(*arguments, **options)

    monkeypatch.setattr(mirrors, "put_folder", put_folder)
    assert train("run") == 75
    said = capfd.readouterr().err
    assert "failed 5 times" in said
    assert "the same command" in said
    assert "run.mirror lacks the checkpoint of step 2" in caplog.text
    assert Path("run/export/model.safetensors").is_file()
    assert not steps_on(text)
    broken = False
    assert train("run") == 0
    assert "step-00000008" in steps_on(text)
    assert "runs/one/export/sha256.json" in text.objects


def test_a_store_that_cannot_be_written_is_told_before_training(text, capfd):
    assert train("run", mirror="nobody://bucket") == 2
    assert "nobody://bucket" in capfd.readouterr().err
    text.faults += ["500"] * 50
    assert train("run") == 75
    assert URL in capfd.readouterr().err
    assert not Path("run/metrics.jsonl").exists()


def test_a_copy_delays_no_step_and_the_newest_checkpoint_waits_alone(text, monkeypatch, tmp_path):
    """While one is copied its folder is held, and of those that wait only the newest is copied."""
    begun, go_on, copied = threading.Event(), threading.Event(), []

    def copy(self, step):
        begun.set()
        go_on.wait()
        copied.append(step)

    monkeypatch.setattr(Mirror, "_copy", copy)
    mirror = Mirror(tmp_path, URL, keep=2)
    mirror.copy(1)
    begun.wait()
    for step in (2, 3, 4):
        mirror.copy(step)
    assert mirror.held == {1, 4}
    go_on.set()
    mirror.finish(with_export=False)
    assert copied == [1, 4]
