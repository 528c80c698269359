"""Workers killed at random, one by one and all at once as when a node is lost, change nothing of what is made.

Ray's workers and nodes are killed in test_ray.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from engine_jobs import contents, fingerprint

from bertkit.cli import main

PARTS = 3


@pytest.fixture(scope="module")
def expected(home, tmp_path_factory):
    """The rows and the text as they are made where nobody is killed."""
    folder = tmp_path_factory.mktemp("expected")
    for part in range(1, PARTS + 1):
        assert main(["prepare", *home[1], "--out", str(folder / "rows"), "--part", f"{part}/{PARTS}"]) == 0
    assert main(["prepare", "--merge", str(folder / "rows")]) == 0
    assert main(["clean", "--corpus", str(home[0] / "my.txt"), "--min-words", "5", "--out", str(folder / "text")]) == 0
    return fingerprint(folder / "rows"), contents(folder / "text")


@pytest.mark.parametrize("engine", ["local", "slurm"])
def test_rows_are_the_same_whoever_is_killed(engine, home, expected, cluster, tmp_path):
    (tmp_path / "submitted.lost").touch()  # here nothing but kills goes wrong
    with Striker(tmp_path / "rows") as striker:
        arguments = ["--out", str(tmp_path / "rows"), "--engine", engine, "--parts", str(PARTS)]
        assert main(["prepare", *home[1], *arguments]) == 0
    assert striker.strikes == 2
    assert fingerprint(tmp_path / "rows") == expected[0]


def test_text_is_the_same_whoever_is_killed(home, expected, tmp_path):
    with Striker(tmp_path / "text") as striker:
        given = ["--corpus", str(home[0] / "my.txt"), "--min-words", "5", "--out", str(tmp_path / "text")]
        assert main(["clean", *given, "--engine", "local", "--parts", str(PARTS)]) == 0
    assert striker.strikes == 2
    assert contents(tmp_path / "text") == expected[1]


def test_parts_do_not_outlive_an_engine_that_is_killed(home, tmp_path):
    """Else the same command would find them at work, and make them a second time."""
    command = ["prepare", *home[1], "--out", str(tmp_path / "rows"), "--engine", "local", "--parts", str(PARTS)]
    engine = subprocess.Popen([sys.executable, "-m", "bertkit", *command])
    while not workers(tmp_path / "rows"):
        assert engine.poll() is None
        time.sleep(0.01)
    engine.kill()
    engine.wait()
    made = sorted(tmp_path.glob("rows/part-*/manifest.json"))
    while workers(tmp_path / "rows"):
        time.sleep(0.01)
    assert sorted(tmp_path.glob("rows/part-*/manifest.json")) == made


class Striker(threading.Thread):
    """Kills a worker, and later all that run, each at a random moment of its start, which takes longer than a tenth of
    a second. No part dies more than twice of three tries."""

    def __init__(self, out: Path):
        super().__init__()
        self._out, self._done, self.strikes = out, threading.Event(), 0

    def __enter__(self) -> "Striker":
        self.start()
        return self

    def __exit__(self, *error) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        generator = random.Random(0)
        while self.strikes < 2 and not self._done.is_set():
            if not workers(self._out):
                time.sleep(0.01)
                continue
            time.sleep(generator.random() / 10)
            running = workers(self._out)
            victims = running if self.strikes else generator.sample(running, min(1, len(running)))
            for victim in victims:
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            self.strikes += bool(victims)


def workers(out: Path) -> list[int]:
    """Processes that make a part for this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            if str(out).encode() in words and b"--part" in words:
                found.append(int(path.name))
    return found
