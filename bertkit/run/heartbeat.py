"""A heartbeat between ranks that are not connected yet, so that none waits for one that was killed.

Once they are connected, a broken connection reports a lost rank. Before that, while text is prepared for hours or for
no time, nothing would: torch waits half an hour for a rank that never comes. A launcher such as torchrun ends the
other ranks itself, so under one there is nothing to do here.
"""

import contextlib
import errno
import os
import queue
import socket
import sys
import threading
import time
from datetime import timedelta

import torch.distributed

from bertkit.events import event
from bertkit.run.folder import num_launched

SILENT_BEATS = 40
"""A rank is lost when it was silent for this many of our own beats. Ranks are started together, so this is also how
long one may take to appear."""
_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
"""Seconds that rank 0 may take to answer."""


class RankHeartbeat(contextlib.AbstractContextManager):
    """Until `connected` is called, a rank exits when another one is lost. Alone, it does nothing."""

    def __init__(self) -> None:
        self._rank, self._ranks = int(os.environ.get("RANK", "0")), num_launched()
        self._watching, self._ended = True, threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "RankHeartbeat":
        if self._ranks > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            self._thread = threading.Thread(target=self._beat, args=(self._find(),), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._thread is not None:
            # A thread that still asks the store while Python ends would hold the lock that closing the store waits for.
            self._thread.join(_SECONDS * 5)

    def connected(self) -> None:
        """All ranks are connected; a broken connection now reports a lost rank."""
        self._watching = False

    def _find(self) -> torch.distributed.TCPStore:
        """The store of rank 0. Whoever else listens there may accept a connection and then say nothing, for which torch
        would wait without end; hence the thread."""
        _check_launch()
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        found: queue.Queue[torch.distributed.TCPStore | Exception] = queue.Queue()

        def connect() -> None:
            try:
                found.put(self._connect(address, port))
            except (OSError, RuntimeError) as error:  # torch's network errors are of the second kind
                found.put(error)

        threading.Thread(target=connect, daemon=True).start()
        try:
            store = found.get(timeout=SILENT_BEATS * _SECONDS + 2 * _ANSWER_SECONDS)
        except queue.Empty:
            store = TimeoutError()
        if not isinstance(store, Exception):
            return store
        if "EADDRINUSE" in str(store):
            text = f"port {port} (MASTER_PORT) is in use by another program; wait for it, or choose another port"
            raise OSError(errno.EADDRINUSE, text)
        raise ConnectionError(f"rank 0 did not appear within {SILENT_BEATS} seconds; start all ranks together")

    def _connect(self, address: str, port: int) -> torch.distributed.TCPStore:
        if self._rank:
            _wait_for(address, port)
        # The server of this port is the one that torch will use for the group as well, hence multi_tenant.
        return torch.distributed.TCPStore(
            address,
            port,
            self._ranks,
            self._rank == 0,
            timedelta(seconds=_ANSWER_SECONDS),
            wait_for_workers=False,
            multi_tenant=True,
        )

    def _beat(self, store: torch.distributed.TCPStore) -> None:
        """Beats are counted, not timed: a machine that was suspended must not wake up and declare ranks dead."""
        others = [rank for rank in range(self._ranks) if rank != self._rank]
        heard, silent = dict.fromkeys(others, 0), dict.fromkeys(others, 0)
        left = SILENT_BEATS  # beats after connecting, for ranks that are still connecting
        while left and not self._ended.wait(_SECONDS):
            try:
                store.add(f"bertkit/{self._rank}", 1)
                for rank in others:
                    beats = store.add(f"bertkit/{rank}", 0)
                    silent[rank] = silent[rank] + 1 if beats == heard[rank] else 0
                    heard[rank] = beats
            except RuntimeError:  # rank 0 keeps the store
                silent[0] = SILENT_BEATS + 1
            if not self._watching:
                left -= 1
            elif max(silent.values()) > SILENT_BEATS:
                _exit(max(silent, key=silent.__getitem__))


def _check_launch() -> None:
    """Refuse what is left of a launch, say in a shell on a node of a cluster, or was set by hand in part."""
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ValueError(
            f"WORLD_SIZE={num_launched()} means that several ranks were started, but {missing[0]} is not set; start "
            "them with torchrun or accelerate, or unset WORLD_SIZE, RANK and LOCAL_RANK to train with one process"
        )


def _wait_for(address: str, port: int) -> None:
    """Return once something listens there. Torch would wait as well, but with long pauses between its attempts."""
    deadline = time.monotonic() + SILENT_BEATS * _SECONDS
    while True:
        try:
            socket.create_connection((address, port), timeout=_ANSWER_SECONDS).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_SECONDS / 4)


def _exit(lost: int) -> None:
    """Exits at once, as the main thread may be deep inside torch; every file on disk survives a kill."""
    message = f"rank {lost} was lost before the ranks were connected; see its output"
    print(f"bertkit: {message}", file=sys.stderr)
    event("failed", exit_code=1, message=message)
    sys.stderr.flush()
    os._exit(1)
