"""Verbs that write take no place that is somebody's and share none; exit codes say what went wrong."""

import fcntl
import math
import os
import resource
import shutil
from functools import partial
from pathlib import Path

import pytest
import safetensors.torch
from grammar import write_conll
from machine import obey_permissions
from runs import Home, start

from bertkit.cli import main
from bertkit.model import MaskedLM

MINE = "anna's own words\n"


@pytest.fixture(scope="module")
def world(home: Home, undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to work in: a text, labeled sentences, minimal pairs, a run, a tagger."""
    folder = tmp_path_factory.mktemp("world")
    shutil.copy(home.corpus, folder / "text.txt")
    write_conll(folder / "train.conll", 20)
    (folder / "pairs.tsv").write_text("good\tbad\nanna paints the house\tanna paint the house\n")
    shutil.copytree(undisturbed, folder / "run")
    shutil.copytree(undisturbed / "export", folder / "tokenizer", ignore=shutil.ignore_patterns("model*", "config*"))
    tuned = ["finetune", "ner", f"data.train={folder / 'train.conll'}", f"model.init={folder / 'run'}"]
    assert main([*tuned, f"run.dir={folder / 'tagger'}", "train.epochs=1"]) == 0
    return folder


@pytest.fixture
def here(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own with all of it, where its commands run."""
    for path in world.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


WRITES_FOLDER = {
    "ablate": "ablate bert-mini data.corpus=text.txt optim.lr=[1e-3,2e-3] train.steps=1 --out mine",
    "clean": "clean --corpus text.txt --out mine",
    "demo": "demo --dir mine",
    "export": "export run mine",
    "export onnx": "export run mine --format onnx",
    "export html": "export tagger mine --format html",
    "finetune": "finetune ner data.train=train.conll model.init=run train.epochs=1 run.dir=mine",
    "import": "import run/export mine",
    "pairs": "pairs --corpus text.txt --drop case --out mine",
    "prepare": "prepare --corpus text.txt --tokenizer tokenizer --out mine",
    "tokenizer": "tokenizer train --corpus text.txt --vocab-size 120 --out mine",
}
OWN = {
    "ablate": ["thesis.tex", ".bashrc", "ablation.html"],
    "clean": ["thesis.tex", ".bashrc", "clean.json", "../.cleaning-mine/thesis.tex"],
    "pairs": ["thesis.tex", ".bashrc", "train.tsv"],
    "prepare": ["thesis.tex", ".bashrc", "manifest.json", "progress.json"],
}
"""Files that a user may have in a folder of this name; every verb meets the first two."""


@pytest.mark.parametrize("verb", WRITES_FOLDER)
def test_no_verb_writes_into_a_folder_of_the_users_own(here, tried, capsys, verb):
    """Row 30: it names what is there, hidden files too, and touches nothing."""
    for name in OWN.get(verb, ["thesis.tex", ".bashrc"]):
        path = here / "mine" / name
        path.parent.resolve().mkdir(parents=True, exist_ok=True)
        path.write_text(MINE)
        before = sorted(file.name for file in here.iterdir())
        assert main(WRITES_FOLDER[verb].split()) == 2, name
        assert "mine" in capsys.readouterr().err
        assert path.read_text() == MINE
        assert sorted(file.name for file in here.iterdir()) == before, "nothing new lies beside it"
        path.unlink()
        tried()


WRITES_FILE = {
    "report": "report run --out mine.html",
    "attention": "attention anna --model run --out mine.html",
    "corpus": "corpus report --corpus text.txt --out mine.html",
    "judge --page": "judge run pairs.tsv --page mine.html",
    "judge --predictions": "judge run pairs.tsv --predictions mine.html",
    "tag": "tag --model tagger text.txt --ask 1 --page mine.html",
    "evaluate": "evaluate run text.txt --json=mine.html",
    "info": "info run --json=mine.html",
    "plan": "plan bert-mini --json=mine.html",
}


@pytest.mark.parametrize("verb", WRITES_FILE)
def test_no_page_or_answer_takes_the_place_of_a_file_of_the_users_own(here, tried, capsys, verb):
    """Row 30: a page takes only that of a page, an answer that of an answer."""
    (here / "mine.html").write_text(MINE)
    assert main(WRITES_FILE[verb].split()) == 2
    assert "mine.html is not" in capsys.readouterr().err
    assert (here / "mine.html").read_text() == MINE
    tried()


@pytest.mark.parametrize("verb", WRITES_FILE)
def test_a_page_or_answer_that_cannot_be_written_is_told_before_the_work(here, tried, verb):
    """Row 20: by the name that the user gave, and without any result."""
    (here / "closed").mkdir(mode=0o555)
    words = WRITES_FILE[verb].replace("mine.html", "closed/mine.html").split()
    run = start(words, log=here / "log", before=partial(obey_permissions_in, here))
    assert run.wait() == [2], run.said()
    (line,) = run.said().splitlines()
    assert "closed/mine.html cannot be written" in line
    tried()


def obey_permissions_in(folder: Path) -> None:
    os.chdir(folder)
    obey_permissions()


@pytest.mark.parametrize("verb", ["report", "info"])
def test_an_older_page_or_answer_is_replaced(here, verb):
    for _ in range(2):
        assert main(WRITES_FILE[verb].split()) == 0
    assert (here / "mine.html").stat().st_size


LOCKS = {
    "ablate": "mine/optim.lr=1e-3/seed-0/.lock",
    "finetune": "mine/.lock",
    "clean": ".mine.lock",
    "export": ".mine.lock",
    "export onnx": ".mine.lock",
    "import": ".mine.lock",
    "pairs": ".mine.lock",
    "prepare": ".mine.lock",
    "tokenizer": ".mine.lock",
}


@pytest.mark.parametrize("verb", LOCKS)
def test_a_folder_that_another_command_writes_is_in_use(here, tried, within, verb):
    """Row 19: the second one ends with 75 and names the first; once that is gone, it does its work."""
    (here / LOCKS[verb]).parent.mkdir(parents=True, exist_ok=True)
    with open(here / LOCKS[verb], "w") as lock:
        lock.write("process 7 on earth")
        lock.flush()
        fcntl.lockf(lock, fcntl.LOCK_EX)
        run = start(WRITES_FOLDER[verb].split(), log=here / "log", before=partial(os.chdir, here))
        assert run.wait(within(60)) == [os.EX_TEMPFAIL], run.said()
    assert "is in use by process 7 on earth" in run.said()
    assert "Traceback" not in run.said()
    if LOCKS[verb] == ".mine.lock":
        assert main(WRITES_FOLDER[verb].split()) == 0
        assert not (here / ".mine.lock").exists()
    tried()


FULL = {
    verb: (WRITES_FOLDER[verb], 1500)
    for verb in ("ablate", "clean", "export", "export onnx", "finetune", "pairs", "prepare", "tokenizer")
}
FULL["pretrain"] = "pretrain bert-mini data.corpus=text.txt train.steps=1 run.dir=mine data.cache_dir=cache", 1500
FULL["the weights of an export"] = WRITES_FOLDER["export"], 60_000


@pytest.mark.parametrize("case", FULL)
def test_a_full_disk_is_a_failure_of_the_machine(here, tried, case):
    """Row 6: with its path, exit code 1, and no folder that looks finished."""
    line, limit = FULL[case]
    run = start(line.split(), log=here / "log", before=partial(fill_disk_in, here, limit))
    assert run.wait() == [1], run.said()
    (line,) = [line for line in run.said().splitlines() if line.startswith("bertkit: ")]
    assert "File too large" in line
    assert "mine" in line or "cache" in line
    assert ".tmp" not in line, "the user knows it by another name"
    assert "Traceback" not in run.said()
    assert not any((here / "mine" / name).exists() for name in ("manifest.json", "clean.json", "config.json"))
    tried()


def fill_disk_in(folder: Path, limit: int) -> None:
    """No file may grow beyond so many bytes; a message takes a few hundred."""
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


PRINTS = {
    "tag": "tag --model tagger text.txt",
    "evaluate": "evaluate run text.txt",
    "evaluate --json": "evaluate tagger train.conll --json=/dev/full",
    "judge": "judge run pairs.tsv",
    "fill": "fill --model run [MASK]",
}


@pytest.mark.parametrize("verb", PRINTS)
def test_an_answer_that_a_full_disk_lost_is_a_failure(here, tried, verb):
    """Row 26: of a verb that is there to print, exit code 1."""
    run = start(PRINTS[verb].split(), log=here / "log", before=partial(print_to_full_disk, here))
    assert run.wait() == [1], run.said()
    assert "No space left on device" in run.said()
    assert "Traceback" not in run.said()
    tried()


def print_to_full_disk(folder: Path) -> None:
    os.chdir(folder)
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def test_a_loss_that_is_not_finite_fails_an_ablation(here, tried, capsys, monkeypatch):
    """Row 11: as it does a run of its own."""
    real = MaskedLM.loss
    monkeypatch.setattr(MaskedLM, "loss", lambda self, batch: real(self, batch) * math.nan)
    assert main([*WRITES_FOLDER["ablate"].split(), "train.max_bad_steps=1"]) == 1
    assert "not finite" in capsys.readouterr().err
    tried()


def test_a_loss_that_is_not_finite_fails_a_fine_tuning(here, tried, capsys, monkeypatch):
    """Row 11: with the same remedy."""
    from bertkit.finetune.model_with_loss import ModelWithLoss

    real = ModelWithLoss.forward
    monkeypatch.setattr(ModelWithLoss, "forward", lambda self, batch: real(self, batch) * math.nan)
    assert main([*WRITES_FOLDER["finetune"].split(), "train.max_bad_steps=1"]) == 1
    assert "not finite" in capsys.readouterr().err
    tried()


@pytest.mark.parametrize(
    "line",
    [
        "evaluate broken text.txt",
        "judge broken pairs.tsv",
        "fill --model broken [MASK]",
        "export broken mine",
        "finetune ner data.train=train.conll model.init=broken run.dir=mine",
    ],
)
def test_a_model_with_weights_that_are_not_finite_is_refused(here, tried, capsys, line):
    """Row 11: by every verb that would compute with it, naming the weight."""
    tensors = safetensors.torch.load_file(here / "run/export/model.safetensors")
    shutil.copytree(here / "run/export", here / "broken")
    name = "bert.encoder.layer.1.output.dense.weight"
    tensors[name][3, 5] = math.inf
    safetensors.torch.save_file(tensors, here / "broken/model.safetensors")
    assert main(line.split()) == 2
    assert f"{name!r} holds NaN or infinity" in capsys.readouterr().err
    tried()
