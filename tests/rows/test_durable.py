"""What durable writes is there as a whole or not at all, and leaves nothing beside it."""

import errno
import os

import pytest

from data_pipelines import durable


class Killed(BaseException):
    """A process that ends here runs no handler; a test ends it with this."""


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fill(folder, content: str) -> None:
    with durable.replacing_folder(folder) as unfinished:
        for name in ("a", "b"):
            (unfinished / name).write_text(content)


def test_a_folder_takes_the_place_of_the_old_one(tmp_path):
    for content in ("old", "new"):
        fill(tmp_path / "folder", content)
        assert [(tmp_path / "folder" / name).read_text() for name in ("a", "b")] == [content] * 2
        assert names(tmp_path) == ["folder"]


def test_a_folder_that_fails_half_way_leaves_the_old_one(tmp_path):
    fill(tmp_path / "folder", "old")
    with pytest.raises(TypeError):
        fill(tmp_path / "folder", None)
    assert (tmp_path / "folder" / "a").read_text() == "old"
    assert names(tmp_path) == ["folder"]


def test_death_at_any_change_leaves_one_folder_whole_and_is_cleared_up(tmp_path, monkeypatch):
    calls = {name: getattr(durable, name) for name in ("move", "remove_folder", "sync")}
    for death in range(1, 20):
        folder = tmp_path / str(death) / "folder"
        fill(folder, "old")
        countdown = death

        def dying(real):
            def call(*arguments):
                nonlocal countdown
                countdown -= 1
                if countdown <= 0:  # a dead process makes no further change
                    raise Killed
                real(*arguments)

            return call

        with monkeypatch.context() as patch:
            for name, real in calls.items():
                patch.setattr(durable, name, dying(real))
            try:
                fill(folder, "new")
                break
            except Killed:
                pass
        found = [path for path in folder.parent.iterdir() if path.name in ("folder", ".old-folder")]
        assert found, "neither the old folder nor the new one"
        for path in found:
            assert names(path) == ["a", "b"]
        fill(folder, "newer")
        assert (folder / "a").read_text() == "newer"
        assert names(folder.parent) == ["folder"]
    assert death > 5


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    def fsync(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(durable.os, "fsync", fsync)
    with pytest.raises(OSError, match=str(tmp_path)):
        durable.replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_text() == "old"


def test_what_goes_wrong_names_the_place_that_the_user_knows(tmp_path):
    target = tmp_path / "folder"
    with pytest.raises(OSError, match=r"/folder/part/a'$"), durable.replacing_folder(target) as unfinished:
        durable.write_file(unfinished / "part" / "a", b"")
    assert names(tmp_path) == []
    with pytest.raises(OSError, match=r"/missing/a\.txt'$"):
        durable.replace_file(tmp_path / "missing" / "a.txt", b"")
    other = tmp_path / "other" / "b"
    with pytest.raises(OSError, match=r"other/b'$"), durable.replacing_folder(target):
        durable.write_file(other, b"")
