"""Starts one Python program as several ranks on this machine, as `torchrun` would, without its agent."""

import os
import subprocess
import sys
from pathlib import Path

from machine import free_port

ROOT = Path.cwd()


def start_ranks(arguments: list[str], num_ranks: int, **options) -> list[subprocess.Popen]:
    """Processes running `python ARGUMENTS`, which find each other over the loopback interface."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests/support", ROOT / "tests/run"))),
        "OMP_NUM_THREADS": "1",
    }
    if num_ranks > 1:
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(num_ranks)}
        environment |= {"GLOO_SOCKET_IFNAME": "lo", "LOCAL_WORLD_SIZE": str(num_ranks)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=environment | ({"RANK": str(rank), "LOCAL_RANK": str(rank)} if num_ranks > 1 else {}),
            **pipes,
        )
        for rank in range(num_ranks)
    ]


def run_ranks(code: str, num_ranks: int) -> list[str]:
    """What each rank of a program prints."""
    ranks = start_ranks(["-c", code], num_ranks)
    outputs = [rank.communicate(timeout=240) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), outputs
    return [stdout for stdout, _ in outputs]
