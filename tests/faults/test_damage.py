"""A checkpoint that is not what was saved is noticed, named and passed over; with none left a run is refused."""

import logging
import random
import shutil
from pathlib import Path

import pytest
from counts import counts
from runs import EVERY, final_state, newest

from bertkit.run.checkpoint import checkpoints, load_newest

FILES = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")


def assert_falls_back(folder: Path, damaged: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    loaded = load_newest(folder / "checkpoints")
    assert loaded is not None
    assert loaded.step == EVERY
    # A changed digit in the manifest makes another file look changed, a changed name one look missing.
    named = "" if damaged == "manifest.json" else damaged
    assert f"step-{2 * EVERY:08d}/{named}" in caplog.text


@counts(everyday=5, full=20)
def test_a_cut_checkpoint_is_passed_over(at_step_10, tried, caplog, count):
    """Row 7: cut at offsets spread over its files, the first byte and the last among them."""
    sizes = {name: (newest_files(at_step_10) / name).stat().st_size for name in FILES}
    rng = random.Random(7)
    cuts = [(name, end) for name in FILES for end in (1, sizes[name] - 1)]
    cuts += [(name, rng.randrange(1, sizes[name])) for name in rng.choices(FILES[1:3], k=count)]
    for name, end in random.Random(0).sample(cuts, count):
        with damaged(newest_files(at_step_10) / name) as path:
            path.write_bytes(path.read_bytes()[:end])
            assert_falls_back(at_step_10, name, caplog)
            tried()


@counts(everyday=10, full=100)
def test_a_flipped_bit_is_noticed_wherever_it_is(at_step_10, tried, caplog, count):
    """Row 7: at random places, the small files as often as the large ones."""
    rng = random.Random(count)
    for case in range(count):
        name = FILES[case % len(FILES)]
        with damaged(newest_files(at_step_10) / name) as path:
            data = bytearray(path.read_bytes())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            assert_falls_back(at_step_10, name, caplog)
            tried()


@pytest.mark.parametrize("name", FILES)
def test_a_lost_or_emptied_file_is_noticed(at_step_10, tried, caplog, name):
    """Row 7: each file of a checkpoint, and one that is a folder or another's."""
    for damage in (Path.unlink, lambda path: path.write_bytes(b""), replace_by_folder, replace_by_another):
        with damaged(newest_files(at_step_10) / name) as path:
            damage(path)
            assert_falls_back(at_step_10, name, caplog)
            tried()


@pytest.mark.parametrize("name", ["optimizer.safetensors", "manifest.json"])
def test_a_run_with_a_damaged_checkpoint_warns_and_ends_in_the_same_bits(home, expected, at_step_10, tried, name):
    """Row 7: the damage costs one interval."""
    path = newest_files(at_step_10) / name
    path.write_bytes(path.read_bytes()[:-7])
    run = home.finish(at_step_10)
    assert f"checkpoint skipped: {path}" in run.said()
    assert f"resuming from step {EVERY} of" in run.said()
    assert final_state(at_step_10) == expected
    tried()


def test_a_run_whose_checkpoints_are_all_bad_is_refused(home, at_step_10, tried):
    """Row 8: it does not start over, and touches nothing."""
    for damage in (replace_by_another, lambda path: path.write_bytes(b""), Path.unlink):
        for _, folder in checkpoints(at_step_10 / "checkpoints"):
            damage(folder / "model.safetensors")
        before = {path: path.stat().st_mtime_ns for path in (at_step_10 / "checkpoints").rglob("*")}
        run = home.start(at_step_10)
        assert run.wait() == [2], run.said()
        assert f"every checkpoint in {at_step_10 / 'checkpoints'} is damaged" in run.said()
        assert "model.safetensors" in run.said()
        assert "Traceback" not in run.said()
        assert {path: path.stat().st_mtime_ns for path in (at_step_10 / "checkpoints").rglob("*")} == before
        tried()


def test_a_run_whose_checkpoints_are_gone_is_refused(home, at_step_10, tried):
    """Row 8: a folder that lost its checkpoints, though its metrics tell of steps, does not start over either."""
    shutil.rmtree(at_step_10 / "checkpoints")
    run = home.start(at_step_10)
    assert run.wait() == [2], run.said()
    assert "checkpoints" in run.said()
    assert newest(at_step_10) == 0
    tried()


def newest_files(folder: Path) -> Path:
    return checkpoints(folder / "checkpoints")[-1][1]


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_another(path: Path) -> None:
    path.write_bytes(path.with_name("state.json" if path.name != "state.json" else "manifest.json").read_bytes())


class damaged:
    """Within this context a file may be damaged; afterwards it is whole."""

    def __init__(self, path: Path):
        self._path, self._data = path, path.read_bytes()
        logging.getLogger("bertkit").setLevel(logging.WARNING)

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *error: object) -> None:
        if self._path.is_dir():
            self._path.rmdir()
        self._path.write_bytes(self._data)
