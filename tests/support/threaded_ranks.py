"""Ranks as threads of one process, with true collectives and true numbers: as many as a test likes."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg, _uninstall_threaded_pg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bertkit.plan.watch import Memory


class Rank:
    """What a step asks of accelerate, of a rank of FSDP; of one rank without it."""

    device = torch.device("cpu")

    def __init__(self, num_processes: int = 1, process_index: int = 0):
        self.num_processes, self.process_index = num_processes, process_index
        self.is_main_process = process_index == 0

    def unwrap_model(self, model, **_):
        return model

    @contextlib.contextmanager
    def no_sync(self, model):
        sharded = hasattr(model, "set_requires_gradient_sync")
        if sharded:
            model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            if sharded:
                model.set_requires_gradient_sync(True)


class Counted(TorchDispatchMode):
    """Counts the memory of all tensors that are made; what torch puts around them has none, nor have fake ones."""

    def __init__(self):
        super().__init__()
        self.memory = Memory("cpu")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if type(leaf) in (torch.Tensor, torch.nn.Parameter):
                self.memory.note(leaf)
        return out


def shard(model: torch.nn.Module, num_ranks: int, policy: MixedPrecisionPolicy | None = None) -> torch.nn.Module:
    """As accelerate does it: layer by layer, and the rest."""
    mesh = init_device_mesh("cpu", (num_ranks,))
    for part in (*model.encoder.layers, model):
        fully_shard(part, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    return model


def on_ranks(num_ranks: int, work: Callable[[Rank], Any]) -> list[Any]:
    """What `work` returns on each rank."""
    results: list[Any] = [None] * num_ranks
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            dist.init_process_group("threaded", rank=rank, world_size=num_ranks, store=store)
            results[rank] = work(Rank(num_ranks, rank))
        except BaseException as error:
            errors.append(error)
            _abort()

    _install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    store = dist.HashStore()
    try:
        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(num_ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        _uninstall_threaded_pg()
    if errors:
        raise errors[0]
    return results


def _abort() -> None:
    """Others would wait for ever for a rank that failed."""
    from torch.testing._internal.distributed.multi_threaded_pg import ProcessLocalGroup

    ProcessLocalGroup.exception_handle(RuntimeError("another rank failed"))
