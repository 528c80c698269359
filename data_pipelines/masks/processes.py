"""What distinguishes a process from all others that mask rows with a copy of the same collator."""

import itertools
import os
import sys

from data_pipelines.masks.keyed import fold

COPIES = itertools.count(1)
"""The numbers of the copies of collators that this process gets."""


def process_identity(home: int | None, copy: int) -> tuple[int, int]:
    """Rank, and what identifies this process within the rank: the seed of a DataLoader worker, which torch draws
    anew every epoch, or the number of any other process than the collator's `home`, and of the copy that it got. No two
    streams are alike."""
    rank, worker = int(os.environ.get("RANK", 0)), None
    torch = sys.modules.get("torch")
    if torch is not None:
        worker = torch.utils.data.get_worker_info()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank()
    if worker is not None and _forked_from() is None:
        return rank, worker.seed
    return rank, 0 if os.getpid() == home else fold(*(process_numbers() or [os.getpid()]), copy)


def process_numbers() -> list[int]:
    """The number of this process among the children of its parent, and of its parent; empty for one that no
    multiprocessing module started. One that was forked without such a module has its process id as well."""
    numbers = _numbers()
    return numbers if _forked_from() is None or not numbers else [*numbers, os.getpid()]


def _numbers() -> list[int]:
    """(datasets uses its own module, multiprocess.)"""
    modules = (sys.modules.get(name) for name in ("multiprocessing", "multiprocess"))
    return [number for module in modules if module is not None for number in module.current_process()._identity]


_forks: list[list[int]] = []
"""The numbers that this process had when it was forked: those of its parent."""


def _forked_from() -> list[int] | None:
    """The numbers of the process that this one was forked from, if no multiprocessing module gave it others."""
    return _forks[-1] if _forks and _forks[-1] == _numbers() else None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forks.append(_numbers()))
