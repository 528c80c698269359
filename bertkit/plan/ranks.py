"""One rank among many that do not exist, brought up by accelerate's own code from a launch file."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import nn

from bertkit.plan.fake_cuda import fake_cuda, replaced
from bertkit.run.ranks import start_accelerator


@contextlib.contextmanager
def fake_ranks(num_ranks: int, launch_file: Path | None, precision: str, rank: int = 0) -> Iterator[Accelerator]:
    """An accelerator on fake CUDA as the launch file would have it on this rank. Tensors made inside are fake."""
    environment = launch_environment(num_ranks, launch_file, rank) if num_ranks > 1 else {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_in_environment(environment))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mode = stack.enter_context(fake_cuda(local_rank=rank % 8))
        stack.callback(_forget)
        _forget()
        if num_ranks > 1:
            stack.enter_context(_fake_group(num_ranks, rank))
        accelerator = start_accelerator(folder, precision, [])
        if num_ranks > 1 and accelerator.is_fsdp2:
            # A mesh holds real numbers, so it is made before tensors are fake.
            mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (num_ranks,))
            from torch.distributed.fsdp._fully_shard import _fully_shard

            stack.enter_context(replaced(_fully_shard, "_init_default_mesh", lambda *args, **kwargs: mesh))
        elif num_ranks > 1:
            for name in ("_verify_param_shape_across_processes", "_sync_module_states"):
                stack.enter_context(replaced(nn.parallel.distributed, name, lambda *args, **kwargs: None))
        stack.enter_context(mode)
        yield accelerator


def fake_parameters(model: nn.Module, device: torch.device) -> None:
    """Inside fake mode: give each parameter and buffer of an outline a place on the device."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, param in module._parameters.items():
            if param is not None:
                if param not in made:
                    empty = torch.empty(param.shape, dtype=param.dtype, device=device)
                    made[param] = nn.Parameter(empty, requires_grad=param.requires_grad)
                module._parameters[name] = made[param]
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else torch.empty_like(buffer, device=device)
    # They lie there already; moving would swap tensors, which fake ones refuse.
    model.__dict__["to"] = lambda *args, **kwargs: model


def answer_messages(model: nn.Module) -> None:
    """DDP waits for the sum of its buckets, which a group that does not exist never gives."""

    def summed(_: object, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        torch.distributed.all_reduce(bucket.buffer())
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    if isinstance(model, nn.parallel.DistributedDataParallel):
        model.register_comm_hook(None, summed)


def launch_environment(num_ranks: int, launch_file: Path | None, rank: int) -> dict[str, str]:
    """What `accelerate launch` would set for a process that it starts."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    assert launch_file is not None
    command = [f"--config_file={launch_file}", f"--num_processes={num_ranks}", "-m", "bertkit"]
    with _in_environment({}):
        args, _, _ = _validate_launch_command(launch_command_parser().parse_args(command))
        environment = prepare_multi_gpu_env(args)
    on_machine = min(8, num_ranks)
    places = {"RANK": rank, "WORLD_SIZE": num_ranks, "LOCAL_RANK": rank % on_machine, "LOCAL_WORLD_SIZE": on_machine}
    return {**environment, **{name: str(place) for name, place in places.items()}}


@contextlib.contextmanager
def _in_environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _fake_group(num_ranks: int, rank: int) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=rank, world_size=num_ranks, store=FakeStore())
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def _forget() -> None:
    """Accelerate remembers for a whole process which device it is on."""
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    PartialState._reset_state()
