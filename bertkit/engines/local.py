"""Runs the parts of a job on this machine, as many at a time as it has cores."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from bertkit.engines.parts import Commands
from data_pipelines.cores import num_cores

_POLL_SECONDS = 0.2


def run(commands: Commands) -> None:
    waiting, running = list(commands.by_part), dict[int, subprocess.Popen]()
    try:
        while waiting or running:
            while waiting and len(running) < num_cores():
                part = waiting.pop(0)
                running[part] = start(commands.by_part[part], commands.log_of(part))
            time.sleep(_POLL_SECONDS)
            running = {part: process for part, process in running.items() if process.poll() is None}
            commands.watch()
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


def start(command: list[str], log: Path, folder: Path | str | None = None) -> subprocess.Popen:
    """A part on one core, so that parts side by side do not crowd each other."""
    log.parent.mkdir(parents=True, exist_ok=True)  # on another machine
    with open(log, "wb") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=os.environ | {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            preexec_fn=partial(_die_with_parent, os.getpid()) if sys.platform == "linux" else None,
        )


def _die_with_parent(parent: int) -> None:
    """A part must not outlive a killed engine: the next one would make it again at the same time."""
    set_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # killed before it could be asked to tell
        os._exit(1)
