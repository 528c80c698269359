"""A checkpoint is complete or absent; a damaged one is noticed, named and passed over; the folder has one owner."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertkit.run.checkpoint import Checkpoint, checkpoints, load_checkpoint, load_newest, save_checkpoint
from bertkit.run.lock import locked
from data_pipelines import durable

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def checkpoint(step: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    model = {"a.weight": torch.randn(3, 4, generator=generator), "b": torch.randn(5, generator=generator)}
    return Checkpoint(step, {"model": model, "optimizer": {"b/step": torch.tensor(7.0)}}, {"step": step, "best": 1.5})


def save(folder: Path, *steps: int, keep: int = 3, **options) -> None:
    for step in steps:
        save_checkpoint(folder, checkpoint(step), keep=keep, **options)


def steps(folder: Path) -> list[int]:
    return [step for step, _ in checkpoints(folder)]


def assert_same(loaded: Checkpoint | None, step: int) -> None:
    assert loaded is not None
    expected = checkpoint(step)
    assert (loaded.step, loaded.state) == (expected.step, expected.state)
    for part in expected.tensors:
        assert loaded.tensors[part].keys() == expected.tensors[part].keys()
        for name, tensor in expected.tensors[part].items():
            assert torch.equal(loaded.tensors[part][name], tensor)


def test_what_was_saved_comes_back(tmp_path):
    save(tmp_path, 5)
    assert_same(load_newest(tmp_path), 5)


def test_no_checkpoint_is_none_and_not_an_error(tmp_path):
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "absent") is None


def test_the_newest_n_and_the_best_are_kept(tmp_path):
    save(tmp_path, 5)
    save(tmp_path, 10, 15, 20, 25, keep=2, besides={5})
    assert steps(tmp_path) == [5, 20, 25]


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 5, 10)
    (tmp_path / "step-00000010" / "state.json").write_text("{}")
    save(tmp_path, 10)
    assert_same(load_checkpoint(tmp_path / "step-00000010"), 10)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["deleted", "emptied", "cut", "extended"])
def test_a_damaged_file_is_named_and_the_previous_checkpoint_loads(tmp_path, caplog, name, damage):
    save(tmp_path, 5, 10)
    path = tmp_path / "step-00000010" / name
    data = path.read_bytes()
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes({"emptied": b"", "cut": data[:-1], "extended": data + b" "}[damage])
    assert_same(load_newest(tmp_path), 5)
    assert name in caplog.text


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_noticed(tmp_path, name):
    save(tmp_path, 5)
    path = tmp_path / "step-00000005" / name
    data = path.read_bytes()
    rng = random.Random(name)
    for bit in rng.sample(range(8 * len(data)), 40):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        # A changed digit in the manifest makes another file look changed.
        named = r"\.(safetensors|json)" if name == "manifest.json" else name
        with pytest.raises(ValueError, match=named):
            load_checkpoint(path.parent)


def test_a_manifest_cannot_name_a_file_elsewhere(tmp_path):
    save(tmp_path, 5)
    path = tmp_path / "step-00000005" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"model.safetensors", b"../outside.bin"))
    with pytest.raises(ValueError, match="manifest"):
        load_checkpoint(path.parent)


def test_when_every_checkpoint_is_damaged_the_run_is_refused(tmp_path):
    save(tmp_path, 5, 10)
    for _, path in checkpoints(tmp_path):
        (path / "state.json").write_text("{}")
    with pytest.raises(ValueError, match=r"every checkpoint .* is damaged.*step-00000010"):
        load_newest(tmp_path)


def test_damaged_checkpoints_that_were_passed_over_do_not_push_out_good_ones(tmp_path):
    save(tmp_path, 5, 10, 15, 20, keep=4)
    for step in (15, 20):
        (tmp_path / f"step-000000{step}" / "state.json").unlink()
    assert_same(load_newest(tmp_path), 10)
    save(tmp_path, 15, keep=2)
    assert steps(tmp_path) == [10, 15]
    assert_same(load_newest(tmp_path), 15)


CALLS = ("write_file", "sync", "move", "remove_folder")


class Died(BaseException):
    """A process that ends here runs no handler; a test ends it with this."""


@pytest.mark.parametrize("after", [False, True])
def test_death_at_any_change_of_the_folder_leaves_a_loadable_checkpoint(tmp_path, monkeypatch, after):
    real = {name: getattr(durable, name) for name in CALLS}
    countdown = 0

    def dying(name):
        def call(*arguments):
            nonlocal countdown
            countdown -= 1
            fatal = countdown == 0
            if fatal and not after:
                raise Died
            real[name](*arguments)
            if fatal:
                raise Died

        return call

    for name in CALLS:
        monkeypatch.setattr(durable, name, dying(name))
    for death in range(1, 100):
        folder = tmp_path / str(death)
        countdown = -1
        save(folder, 5, 10, keep=2)
        countdown = death
        try:
            save(folder, 15, keep=2)
        except Died:
            countdown = -1
            loaded = load_newest(folder)
            assert loaded is not None
            assert loaded.step in (10, 15)
            assert len(steps(folder)) >= 2
            save(folder, 20, keep=2)
            assert all(load_checkpoint(path) for _, path in checkpoints(folder))
            assert {path.name for path in folder.iterdir()} == {path.name for _, path in checkpoints(folder)}
        else:
            break
    assert death > 8, "the save path should pass through more than eight changes"


def test_a_full_disk_keeps_the_previous_checkpoint_and_names_path_and_bytes(tmp_path):
    save(tmp_path, 5)
    code = f"""
import resource, sys
sys.path[:0] = {[str(Path.cwd()), str(Path.cwd() / "tests/support"), str(Path(__file__).parent)]!r}
from pathlib import Path
from test_checkpoint import save
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
save(Path({str(tmp_path)!r}), 10)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "step-00000010" in done.stderr
    assert "bytes" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    assert_same(load_newest(tmp_path), 5)


def test_too_little_room_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match=r"step-00000005: .* [\d,]+ bytes.* 1,000"):
        save(tmp_path, 5)
    assert list(tmp_path.iterdir()) == []


def test_a_prune_that_fails_warns_and_keeps_the_new_checkpoint(tmp_path, monkeypatch, caplog):
    save(tmp_path, 5, 10, keep=2)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(durable, "remove_folder", refuse)
    save(tmp_path, 15, 20, keep=2)
    assert steps(tmp_path) == [15, 20]
    assert_same(load_newest(tmp_path), 20)
    assert "step-00000005 could not be removed" in caplog.text


def test_links_are_neither_loaded_nor_pruned(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    save(elsewhere, 1)
    folder = tmp_path / "run"
    save(folder, 5)
    (folder / "step-00000001").symlink_to(elsewhere / "step-00000001")
    save(folder, 10, 15, keep=2)
    assert steps(elsewhere) == [1]
    assert steps(folder) == [10, 15]


HOLD = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from bertkit.run.lock import locked
with locked(Path({folder!r}) / ".lock"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_by_name_until_the_first_is_gone(tmp_path):
    code = HOLD.format(root=str(Path.cwd()), folder=str(tmp_path))
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(BlockingIOError, match=f"is in use by process {holder.pid} on"), locked(tmp_path / ".lock"):
        pass
    holder.kill()
    holder.communicate()
    with locked(tmp_path / ".lock"):
        assert f"process {os.getpid()} on" in (tmp_path / ".lock").read_text()
