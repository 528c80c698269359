"""A disk that is full, read-only or not what it seems stops a run before it trains, or costs it nothing."""

import resource
import shutil
from functools import partial
from pathlib import Path

import pytest
from counts import counts
from dying import fail_in_save, record_changes
from machine import obey_permissions
from runs import EVERY, final_state, newest, start

from bertkit.run.checkpoint import checkpoints, load_checkpoint


def test_a_disk_that_is_full_while_saving_keeps_what_was_there(home, expected, at_step_10, tried):
    """Row 6: files may not grow beyond a limit, as on a full disk; afterwards the run resumes."""
    before = contents(at_step_10 / "checkpoints")
    run = home.start(at_step_10, before=partial(limit_files, 500_000))
    assert run.wait() == [1], run.said()
    assert f"{at_step_10}/checkpoints/step-{3 * EVERY:08d}: " in run.said()
    assert "bytes, " in run.said()
    assert "are free" in run.said()
    assert "Traceback" not in run.said()
    assert contents(at_step_10 / "checkpoints") == before
    home.finish(at_step_10)
    assert final_state(at_step_10) == expected
    tried()


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@counts(everyday=3, full=1000)
@pytest.mark.timeout(1800)
def test_a_disk_that_is_full_at_any_moment_of_a_save_keeps_what_was_there(home, killed, tmp_path, tried, count):
    """Row 6: each change up to the one that makes the new checkpoint visible fails, a write after half of it."""
    saved = 3 * EVERY
    shutil.copytree(killed, tmp_path / "recorded")
    home.start(tmp_path / "recorded", before=partial(record_changes, saved, tmp_path / "changes")).wait()
    names = (tmp_path / "changes").read_text().split()
    # The first asks for a folder that is there already.
    indices = range(1, names.index("rename") + 1)
    before = contents(killed / "checkpoints")
    for index in indices if count >= len(indices) else indices[:: len(indices) // count][:count]:
        folder = shutil.copytree(killed, tmp_path / str(index))
        run = home.start(folder, before=partial(fail_in_save, saved, index))
        assert run.wait() == [1], (names[index], run.said())
        assert "No space left on device" in run.said()
        assert "are free" in run.said(), (names[index], run.said())
        assert contents(folder / "checkpoints") == before, names[index]
        tried()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("inside", ["", "checkpoints"])
def test_a_folder_that_cannot_be_written_is_told_before_training(home, killed, tmp_path, tried, inside):
    """Row 20: a new run's folder, or that of an old one's checkpoints."""
    folder = tmp_path / "run"
    if inside:
        shutil.copytree(killed, folder)
    else:
        folder.mkdir()
    (folder / inside).chmod(0o555)
    assert_refused_before_training(home, folder, str(folder / inside), before=obey_permissions)
    tried()


def test_a_place_where_nothing_can_be_made_is_told_before_training(home, tried):
    """Row 20: a file system that takes no folders, and a parent that is missing there."""
    for place in ("/proc/run", "/proc/missing/run"):
        assert_refused_before_training(home, Path(place), "/proc")
        tried()


@pytest.mark.parametrize("taken", ["", "parent", "checkpoints", "export", "metrics.jsonl", "cache"])
def test_a_file_where_a_folder_should_be_is_told_before_training(home, killed, tmp_path, tried, taken):
    """Row 20: and a folder where a file should be."""
    folder = tmp_path / "parent" / "run"
    path = {"": folder, "parent": folder.parent, "cache": tmp_path / "cache"}.get(taken, folder / taken)
    path.parent.mkdir(parents=True, exist_ok=True)
    if taken in ("checkpoints", "export", "metrics.jsonl"):
        shutil.copy(killed / "recipe.yaml", folder)
        shutil.copy(killed / ".lock", folder)
    if taken == "metrics.jsonl":
        path.mkdir()
    else:
        path.write_text("precious")
    changes = [f"data.cache_dir={path}"] if taken == "cache" else []
    assert_refused_before_training(home, folder, str(path), *changes)
    assert path.is_dir() or path.read_text() == "precious"
    tried()


def assert_refused_before_training(home, folder: Path, named: str, *changes: str, before=None) -> None:
    log = home.corpus.parent / "refused.log"
    run = start(home.argv(folder, *changes), log=log, before=before)
    assert run.wait() == [2], run.said()
    assert named in run.said()
    assert "Traceback" not in run.said()
    assert "step 1/" not in run.said()


def test_a_missing_parent_is_made(home, tmp_path):
    """Row 20: what can be made is made."""
    run = start(home.argv(tmp_path / "a" / "b" / "run", "train.steps=1"), log=tmp_path / "log")
    assert run.wait() == [0], run.said()


@counts(everyday=2, full=1000)
@pytest.mark.timeout(1800)
def test_a_prune_that_fails_half_way_costs_nothing(home, expected, killed, tmp_path, tried, count):
    """Row 23: each rename and delete of a prune fails once; the run warns, continues and ends in the same bits."""
    saved = 3 * EVERY
    shutil.copytree(killed, tmp_path / "recorded")
    home.start(tmp_path / "recorded", before=partial(record_changes, saved, tmp_path / "changes")).wait()
    names = (tmp_path / "changes").read_text().split()
    prune = range(names.index("rename") + 2, len(names))
    assert len(prune) > 5
    for index in prune if count >= len(prune) else prune[:: len(prune) // count][:count]:
        folder = shutil.copytree(killed, tmp_path / str(index))
        run = home.start(folder, before=partial(fail_in_save, saved, index, 5))
        assert run.wait() == [0], (names[index], run.said())
        assert "could not be" in run.said(), (names[index], run.said())
        assert final_state(folder) == expected
        hidden = [path.name for path in (folder / "checkpoints").glob(".*")]
        assert not hidden, "the next save removes what was left"
        tried()


def test_nothing_is_deleted_before_two_checkpoints_are_whole(home, at_step_10, tmp_path, tried):
    """Row 23: looked at before every single delete of a run."""
    run = home.start(at_step_10, before=partial(count_before_deletes, at_step_10, tmp_path / "counts"))
    assert run.wait() == [0], run.said()
    counted = [list(map(int, line.split())) for line in (tmp_path / "counts").read_text().splitlines()]
    assert len(counted) >= 10
    for whole in counted:
        assert len(whole) >= 2
    assert newest(at_step_10) == counted[-1][-1]
    tried(len(counted))


def count_before_deletes(folder: Path, log: Path) -> None:
    """Before a checkpoint's folder is removed, load all that are left and write down their steps."""
    from data_pipelines import durable

    real = durable.remove_folder

    def remove_folder(path: Path) -> None:
        if path.parent.name == "checkpoints":
            steps = [load_checkpoint(path).step for _, path in checkpoints(folder / "checkpoints")]
            with open(log, "a") as file:
                file.write(" ".join(map(str, steps)) + "\n")
        real(path)

    durable.remove_folder = remove_folder
