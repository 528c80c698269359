"""What is free of memory, files and disk is told from the system's own files, and what cannot fit is refused."""

import resource

import pytest
import torch

from bertkit.run import room
from bertkit.run.room import Memory, check_disk, check_memory, check_open_files, free_memory

CPU = torch.device("cpu")


def test_memory_of_a_machine_and_of_a_container_by_hand(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  250 kB\n")
    assert room._of_machine(tmp_path / "meminfo") == Memory(250 * 1024, 1000 * 1024)
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("970\n")
    (tmp_path / "memory.stat").write_text("anon 9\ninactive_file 20\n")
    assert room._of_container(tmp_path) == Memory(50, 1000)
    (tmp_path / "memory.max").write_text("max\n")
    assert room._of_container(tmp_path) is None
    assert room._of_machine(tmp_path / "nowhere") is room._of_container(tmp_path / "nowhere") is None
    assert 0 < free_memory(CPU) <= 1


def test_memory_of_a_process_with_a_limit_by_hand(tmp_path, monkeypatch):
    (tmp_path / "statm").write_text("2 1 1 1 0 1 0\n")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (5 * 4096, 9 * 4096))
    monkeypatch.setattr(room.os, "sysconf", lambda name: 4096)
    assert room._of_process(tmp_path / "statm") == Memory(3 * 4096, 5 * 4096)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert room._of_process(tmp_path / "statm") is None


def test_the_smallest_limit_decides_and_ranks_of_one_host_share_it(monkeypatch):
    monkeypatch.setattr(
        room, "_memories", lambda device: iter([Memory(9_000_000_000, 10**10), Memory(4 * 10**9, 10**10)])
    )
    check_memory({"model.hidden_size": 3e9, "train.micro_batch": 0.9e9}, CPU)
    with pytest.raises(
        ValueError, match=r"^model.hidden_size: .* 7.8 GB .* 4.0 GB .*3.0 GB by model.hidden_size.* 2 proc"
    ):
        check_memory({"model.hidden_size": 3e9, "train.micro_batch": 0.9e9}, CPU, sharing=2)
    with pytest.raises(ValueError, match=r"^train.micro_batch: "):
        check_memory({"model.hidden_size": 1e9, "train.micro_batch": 3.1e9}, CPU)
    monkeypatch.setattr(room, "_memories", lambda device: iter(()))
    check_memory({"model.hidden_size": 1e20}, CPU)


def test_more_files_than_a_process_may_open_are_refused(monkeypatch):
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 500))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: raised.append(limits))
    check_open_files(300)
    assert raised == [(500, 500)]
    with pytest.raises(ValueError, match=r"480 files.*500.*ulimit -n"):
        check_open_files(480)


def test_a_checkpoint_that_would_not_fit_the_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: Memory(free=1200, total=9))
    check_disk(tmp_path, 100)
    with pytest.raises(OSError, match=r"checkpoints: .* 1,212 bytes, 1,200 are free"):
        check_disk(tmp_path, 101)
