"""Runs the parts of a job on a Ray cluster: the one that RAY_ADDRESS names, else one on this machine."""

import os
import socket
from pathlib import Path

from bertkit.engines.local import start
from bertkit.engines.parts import Commands

_WAIT_SECONDS = 1.0
_CONNECT_SECONDS = 20.0


def run(commands: Commands) -> None:
    """The folder of the parts must be on a disk that all nodes share."""
    try:
        import ray
    except ImportError:
        raise ValueError("--engine ray needs the package ray; install it with: pip install 'bertkit[ray]'") from None
    started, address = not ray.is_initialized(), os.environ.get("RAY_ADDRESS")
    if started:
        _check_address(address)
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    try:
        # A lost node or a killed worker is tried again by Ray itself; a part that fails is left to the next round.
        remote = ray.remote(num_cpus=1, max_retries=2)(_run_part)
        waiting = [
            remote.remote(command, str(commands.log_of(part)), str(Path.cwd()))
            for part, command in commands.by_part.items()
        ]
        while waiting:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_WAIT_SECONDS)
            commands.watch()
    finally:
        if started:
            ray.shutdown()


def _check_address(address: str | None) -> None:
    """Refuse an address where nobody answers; Ray itself tries for many minutes."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():  # none, or a word of Ray's such as auto
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"RAY_ADDRESS={address}: no answer ({error}); start Ray, or unset it") from None


def _run_part(command: list[str], log: str, folder: str) -> int:
    return start(command, Path(log), folder).wait()
