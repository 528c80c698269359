"""Runs the parts of a job on this machine, as many at a time as it has cores."""

import os
import subprocess
import time

from bertkit.engines.parts import Commands

_POLL_SECONDS = 0.2


def run(commands: Commands) -> None:
    waiting, running = list(commands.by_part), dict[int, subprocess.Popen]()
    try:
        while waiting or running:
            while waiting and len(running) < len(os.sched_getaffinity(0)):
                part = waiting.pop(0)
                running[part] = start(commands, part)
            time.sleep(_POLL_SECONDS)
            running = {part: process for part, process in running.items() if process.poll() is None}
            commands.watch()
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


def start(commands: Commands, part: int) -> subprocess.Popen:
    """A part on one core, so that parts side by side do not crowd each other."""
    with open(commands.log_of(part), "wb") as log:
        return subprocess.Popen(
            commands.by_part[part],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
