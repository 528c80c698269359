"""Loads the micro-batches of every step, made ahead of time by worker processes."""

import contextlib
import ctypes
import multiprocessing
import signal
from collections.abc import Iterator
from copy import copy
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Protocol

import numpy as np

from data_pipelines.masks.ahead import ShardsAhead
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.plan import Plan, share_of_rank
from data_pipelines.rows.batch import RowBatch
from data_pipelines.rows.shards import Rows

# Number of Linux's prctl(2).
_PR_SET_PDEATHSIG = 1


class RowCollator(Protocol):
    """What turns rows into a batch: `MaskingCollator`, or one of a pretraining objective."""

    def collate_rows(self, rows: RowBatch, row_ids: np.ndarray, epochs: np.ndarray, step: int) -> PackedBatch:
        """A batch of these rows, each in its epoch, for this step."""


def load_steps(
    rows: Rows,
    plan: Plan,
    collator: RowCollator,
    steps: range,
    *,
    rank: int = 0,
    world_size: int = 1,
    micro_batch: int,
    num_workers: int = 0,
) -> Iterator[tuple[int, list[PackedBatch]]]:
    """The micro-batches of this rank for these steps.

    The rows of a step are split in order over the ranks, then into micro-batches of `micro_batch` rows. The content of
    a batch does not depend on the number of workers.
    """
    import torch

    batches: torch.utils.data.DataLoader = torch.utils.data.DataLoader(
        _Steps(rows.waiting(), plan, collator, rank, world_size, micro_batch),  # type: ignore[arg-type]
        batch_size=None,
        sampler=steps,
        num_workers=num_workers,
        prefetch_factor=4 if num_workers else None,
        worker_init_fn=_end_with_parent,
        # Without its own generator the loader would draw from the global one.
        generator=torch.Generator(),
    )
    others = set(multiprocessing.active_children())
    with _signals_blocked():
        made_ahead = iter(batches)
    # When Python ends it would ask a worker that still runs to end, and wait; but workers do not listen.
    Finalize(made_ahead, _kill, args=(set(multiprocessing.active_children()) - others,), exitpriority=1)
    with ShardsAhead(rows, plan, steps) as shards:
        for step in steps:
            shards.wait_for(step)
            yield step, [_as_tensors(batch) for batch in next(made_ahead)]
            shards.done(step)


def evaluation_batches(
    rows: Rows,
    collator: RowCollator,
    *,
    rank: int = 0,
    world_size: int = 1,
    micro_batch: int,
    max_rows: int | None = None,
) -> Iterator[PackedBatch]:
    """Every row once over all ranks, always with the same masks."""
    count = len(rows) if max_rows is None else min(len(rows), max_rows)
    mine = np.arange(rank, count, world_size)
    for start in range(0, len(mine), micro_batch):
        row_ids = mine[start : start + micro_batch]
        yield collator.collate_rows(rows.gather(row_ids), row_ids, np.zeros_like(row_ids), step=0)


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Processes that are started within this context ignore them. A scheduler signals every process of a run, and its
    parent still needs the batches of a worker to finish its step."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(worker: int) -> None:
    """Let this worker be killed when its parent is. Elsewhere than on Linux torch looks for it every few seconds."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill(workers: set[BaseProcess]) -> None:
    for worker in workers:
        worker.kill()


def _as_tensors(batch: PackedBatch) -> PackedBatch:
    """The batch as tensors, in pinned memory where there is a GPU."""
    import torch

    packed = batch.map(torch.as_tensor)
    return packed.pin_memory() if torch.cuda.is_available() else packed


class _Steps:
    """The micro-batches of a step, by its number, as numpy arrays: a tensor sent by a worker keeps a file open until it
    is used, and with many micro-batches ahead a process would run out of them. A collator without `return_tensors`
    should make arrays for the same reason."""

    def __init__(self, rows, plan, collator, rank, world_size, micro_batch):
        self.rows, self.plan, self.collator = rows, plan, copy(collator)
        self.collator.return_tensors = "np"
        self.rank, self.world_size, self.micro_batch = rank, world_size, micro_batch

    def __getitem__(self, step: int) -> list[PackedBatch]:
        row_ids, epochs = share_of_rank(self.plan.rows_of_step(step), self.rank, self.world_size)
        return [
            self.collator.collate_rows(self.rows.gather(row_ids[here]), row_ids[here], epochs[here], step)
            for here in (slice(i, i + self.micro_batch) for i in range(0, len(row_ids), self.micro_batch))
        ]
