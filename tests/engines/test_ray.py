"""A Ray cluster of several nodes makes the rows and the text that one machine makes, whatever of it is killed.

The nodes are simulated on this machine by Ray's own tools. Without Ray (`pip install 'bertkit[ray]'`) nothing is shown.
"""

import os
import random
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from engine_jobs import contents, fingerprint

from bertkit.cli import main

ray = pytest.importorskip("ray", reason="Ray is not installed, so its engine was not tried: pip install 'bertkit[ray]'")
PARTS = 6


@pytest.fixture
def nodes(monkeypatch):
    """A head and two further nodes of one core each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else whatever runs beside this test is served first
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80 << 20})
    others = [cluster.add_node(num_cpus=1, object_store_memory=80 << 20) for _ in range(2)]
    cluster.wait_for_nodes()
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster, others
    cluster.shutdown()


@pytest.fixture(scope="module")
def expected(home, tmp_path_factory):
    """The rows and the text as this machine makes them."""
    folder = tmp_path_factory.mktemp("expected")
    corpus, given = str(home[0] / "my.txt"), home[1]
    assert main(["prepare", *given, "--out", str(folder / "rows"), "--engine", "local", "--parts", str(PARTS)]) == 0
    assert main(["clean", "--corpus", corpus, "--min-words", "5", "--out", str(folder / "text")]) == 0
    return fingerprint(folder / "rows"), contents(folder / "text")


def make_both(home, folder):
    corpus, given, on_ray = str(home[0] / "my.txt"), home[1], ["--engine", "ray", "--parts", str(PARTS)]
    assert main(["prepare", *given, "--out", str(folder / "rows"), *on_ray]) == 0
    assert main(["clean", "--corpus", corpus, "--min-words", "5", "--out", str(folder / "text"), *on_ray]) == 0
    return fingerprint(folder / "rows"), contents(folder / "text")


@pytest.mark.timeout(600)
def test_several_nodes_make_what_one_machine_makes(home, expected, nodes, tmp_path):
    assert make_both(home, tmp_path) == expected


@pytest.mark.timeout(600)
def test_workers_and_a_node_killed_at_random_change_nothing(home, expected, nodes, tmp_path):
    cluster, others = nodes
    killed, done = [], threading.Event()

    def strike():
        generator = random.Random(0)
        while not done.is_set():
            running = workers()
            if running and len(killed) < 4:
                victim = generator.choice(running)
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    killed.append(victim)
                if len(killed) == 2:
                    cluster.remove_node(others[0], allow_graceful=False)
            time.sleep(1)

    striker = threading.Thread(target=strike)
    striker.start()
    try:
        assert make_both(home, tmp_path) == expected
    finally:
        done.set()
        striker.join()
    assert len(killed) == 4


def test_an_address_where_nobody_answers_is_told_at_once(home, tmp_path, monkeypatch, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("RAY_ADDRESS", f"ray://127.0.0.1:{free.getsockname()[1]}")
        arguments = ["--out", str(tmp_path / "rows"), "--engine", "ray", "--parts", "2"]
        assert main(["prepare", *home[1], *arguments]) == 2
    assert "RAY_ADDRESS=ray://127.0.0.1" in capsys.readouterr().err


def workers() -> list[int]:
    """Processes that this one started which run a part for Ray."""
    found, parents = [], {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            status = (path / "stat").read_text().rpartition(")")[2].split()
            parents[int(path.name)] = int(status[1])
            if b"ray::_run_part" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return [pid for pid in found if os.getpid() in ancestors(pid, parents)]


def ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    line = []
    while pid in parents:
        pid = parents[pid]
        line.append(pid)
    return line
