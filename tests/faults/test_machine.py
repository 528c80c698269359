"""A machine that lacks something is told before training, with the path or the key and the remedy."""

import errno
import os
import resource
import shutil
from functools import partial
from pathlib import Path

import pytest
from grammar import write_conll
from runs import start

from bertkit.cli import main


def have_no_locks() -> None:
    import fcntl

    def lockf(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    fcntl.lockf = lockf


def fail_to_sync(kind: str) -> None:
    """Of files, or of folders only."""
    real = os.fsync

    def fsync(descriptor):
        if kind == "file" or os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    os.fsync = fsync


def fill_disk() -> None:
    real = shutil.disk_usage
    shutil.disk_usage = lambda path: real(path)._replace(free=1_000_000)


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))


LACKING = {
    "locks": (have_no_locks, 2, ".lock cannot be locked (No locks available)", "choose a folder"),
    "a disk that syncs files": (partial(fail_to_sync, "file"), 1, "recipe.yaml", "another disk"),
    "a disk that syncs folders": (partial(fail_to_sync, "folder"), 1, "run: Input/output error", "another disk"),
    "room on the disk": (fill_disk, 1, "checkpoints: a checkpoint needs", "make room"),
    "open files": (limit_files, 2, "files of prepared rows", "ulimit -n"),
}


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("lacking", LACKING)
def test_what_a_machine_lacks_is_told_before_training(home, killed, tmp_path, tried, lacking, resumed):
    """Row 34: at a start and at a resume, in one line with the place and the remedy."""
    before, code, place, remedy = LACKING[lacking]
    folder = tmp_path / "run"
    if resumed:
        shutil.copytree(killed, folder)
    run = home.start(folder, before=before)
    assert run.wait() == [code], run.said()
    (line,) = [line for line in run.said().splitlines() if line.startswith("bertkit: ")]
    assert place in line
    assert remedy in line
    assert "step 1" not in run.said()
    assert "Traceback" not in run.said()
    tried()


TUNED = {
    "locks": ".lock cannot be locked (No locks available)",
    "a disk that syncs files": "recipe.yaml",
    "a disk that syncs folders": "run: Input/output error",
    "room on the disk": "checkpoints: a checkpoint needs",
}


@pytest.mark.parametrize("lacking", TUNED)
def test_what_a_machine_lacks_is_told_before_a_fine_tuning(tmp_path, tried, lacking):
    """Row 34: as pretraining tells it."""
    before, code, _, remedy = LACKING[lacking]
    labeled = write_conll(tmp_path / "train.conll", 20)
    argv = ["finetune", "ner", f"data.train={labeled}", "model.like=bert-mini", f"run.dir={tmp_path / 'run'}"]
    run = start(argv, log=tmp_path / "log", before=before)
    assert run.wait() == [code], run.said()
    (line,) = [line for line in run.said().splitlines() if line.startswith("bertkit: ")]
    assert TUNED[lacking] in line
    assert remedy in line
    assert "step 1" not in run.said()
    assert "Traceback" not in run.said()
    tried()


@pytest.mark.parametrize(
    ("verb", "key"),
    [
        *(("pretrain", key) for key in ("run.dir", "data.corpus", "data.cache_dir", "tokenizer.path")),
        *(("finetune", key) for key in ("run.dir", "data.train", "data.dev", "model.init")),
    ],
)
@pytest.mark.parametrize("name", ["a\udcffb", "x" * 300])
def test_a_name_that_cannot_be_used_is_told_before_anything_is_written(home, tmp_path, tried, capsys, verb, key, name):
    """Row 34: of bytes that are not UTF-8, or of 300 characters."""
    labeled = write_conll(home.corpus.with_name("train.conll"), 3)
    tuning = ["finetune", "ner", f"data.train={labeled}", "model.like=bert-mini", f"run.dir={tmp_path / 'run'}"]
    argv = home.argv(tmp_path / "run") if verb == "pretrain" else tuning
    assert main([*argv, f"{key}={tmp_path / name}"]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    named, remedy = (key, "rename") if "\udcff" in name else (f" {len(str(tmp_path / name))} characters", "shorter")
    assert named in said
    assert remedy in said
    assert list(tmp_path.iterdir()) == []
    tried()


def test_a_file_found_in_a_folder_whose_name_is_not_utf8_is_told(home, tmp_path, tried, capsys):
    """Row 34: nobody typed that name."""
    shutil.copy(home.corpus, os.fsencode(tmp_path) + b"/t\xff.txt")
    assert main([*home.argv(tmp_path / "run"), f"data.corpus={tmp_path}"]) == 2
    assert "t\\udcff.txt" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    tried()


TOO_LARGE = {
    "model.hidden_size": ["model.hidden_size=1048576"],
    "model.intermediate_size": ["model.intermediate_size=4194304", "model.num_hidden_layers=1000"],
    "train.global_batch": ["train.global_batch=2147483648", "train.micro_batch=1"],
    "train.micro_batch": ["train.global_batch=16777216", "train.micro_batch=16777216"],
}


@pytest.mark.parametrize("key", TOO_LARGE)
def test_what_cannot_fit_the_memory_is_refused_by_its_key(home, tmp_path, tried, key):
    """Row 36: before the text is prepared, with an estimate and what is free."""
    run = home.start(tmp_path / "run", *TOO_LARGE[key], f"data.cache_dir={tmp_path / 'cache'}")
    assert run.wait() == [2], run.said()
    (line,) = run.said().splitlines()
    assert line.startswith(f"bertkit: {key}: ")
    assert " GB of memory" in line
    assert not (tmp_path / "cache").exists()
    tried()


def test_a_batch_that_does_not_fit_the_memory_of_a_fine_tuning_is_refused(tmp_path, tried):
    """Row 36: before its first step; a small micro-batch fits."""
    labeled = write_conll(tmp_path / "train.conll", 30_000)
    argv = ["finetune", "ner", f"data.train={labeled}", "model.like=bert-mini", "train.epochs=0.0001"]
    argv += [f"run.dir={tmp_path / 'run'}", "train.global_batch=30000"]
    run = start([*argv, "train.micro_batch=30000"], log=tmp_path / "log", before=partial(limit_memory, 10**9))
    assert run.wait() == [2], run.said()
    assert "bertkit: train.micro_batch: " in run.said()
    assert " GB of memory" in run.said()
    assert "step 1/" not in run.said()
    tried()


def test_a_vocabulary_that_does_not_fit_the_memory_is_refused(home, tmp_path, tried):
    """Row 36: as soon as its size is known; `ulimit -v` counts as well as the machine."""
    changes = ["model.hidden_size=4096", "model.num_hidden_layers=1", "model.intermediate_size=16"]
    run = start(
        home.argv(tmp_path / "run", *changes, "model.max_position_embeddings=300000"),
        log=tmp_path / "log",
        before=limit_memory,
    )
    assert run.wait() == [2], run.said()
    assert "tokenizer.vocab_size: " in run.said()
    tried()


def limit_memory(size: int = 4 * 10**9) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + size, resource.RLIM_INFINITY))
