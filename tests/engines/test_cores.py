"""A process takes the cores that it may use, and all of them where Python cannot tell."""

import os

from data_pipelines.cores import num_cores


def test_a_process_that_is_kept_to_some_cores_counts_those(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 5, 6}, raising=False)
    assert num_cores() == 3


def test_where_python_cannot_tell_all_cores_are_counted(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert num_cores() == 12
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert num_cores() == 1
