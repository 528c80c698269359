"""The ranks of a run: how they connect, how a model is wrapped for them, and how they agree."""

import contextlib
import importlib.util
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, DistributedType, InitProcessGroupKwargs
from torch import nn

from bertkit.model.initialization import values_of
from bertkit.run.folder import num_launched
from bertkit.run.signals import ended_by_signals
from bertkit.run.state import fill_shards, gather_in_turn
from data_pipelines.table import did_you_mean

log = logging.getLogger("bertkit")

Value = TypeVar("Value")

_SUPPORTED = {
    DistributedType.NO,
    DistributedType.MULTI_CPU,
    DistributedType.MULTI_GPU,
    DistributedType.MULTI_XPU,
    DistributedType.FSDP,
}


class Trainable(NamedTuple):
    """A model with its optimizers, moved, sharded or replicated as launched."""

    model: nn.Module
    optimizers: list[torch.optim.Optimizer]
    accelerator: Accelerator


def start_accelerator(folder: Path, precision: str, trackers: list[str]) -> Accelerator:
    """Connect to the other processes. The recipe decides precision; the launcher decides devices and sharding."""
    _check_trackers(trackers)
    started = num_launched()
    # Another rank may come late or never. Nothing is lost: what this one has prepared is on the disk.
    with ended_by_signals() if started > 1 else contextlib.nullcontext():
        accelerator = Accelerator(
            # Explicit: otherwise ranks that torchrun started on a machine without GPU would not find each other.
            cpu=not torch.accelerator.is_available(),
            mixed_precision="bf16" if precision == "bf16" or (precision == "auto" and _has_bf16()) else "no",
            log_with=trackers or None,
            project_dir=folder,
            step_scheduler_with_optimizer=False,
            kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True), *_host_messages(started)],
        )
    if accelerator.num_processes != started:
        raise ValueError(f"{started} processes were started, but accelerate sees {accelerator.num_processes} of them")
    kind = accelerator.distributed_type
    if kind not in _SUPPORTED or (kind == DistributedType.FSDP and not accelerator.is_fsdp2):
        raise ValueError(
            f"launched as {kind.value}, which bertkit does not support; use DDP, or FSDP with fsdp_version: 2"
        )
    if trackers:
        accelerator.init_trackers("bertkit")
    return accelerator


def _has_bf16() -> bool:
    """Whether there is a GPU that computes in bf16 itself."""
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def _host_messages(num_processes: int) -> list[InitProcessGroupKwargs]:
    """Let ranks of devices exchange tensors of the host too: what the host knows should not wait for the device."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    library = {"cuda": "nccl", "xpu": "xccl"}.get(device.type) if device else None
    if num_processes == 1 or library is None:
        return []
    return [InitProcessGroupKwargs(backend=f"{device}:{library},cpu:gloo")]


def is_sharded(accelerator: Accelerator) -> bool:
    """Whether each rank holds a share of the weights; then `wrap` is given an outline, and nobody holds them all."""
    return accelerator.distributed_type == DistributedType.FSDP


def rounding_facts(accelerator: Accelerator) -> dict[str, Any]:
    """What decides how sums and products are rounded: run.json remembers it, and a resume is compared with it."""
    precision = "bf16" if accelerator.mixed_precision == "bf16" else "fp32"
    return {"threads": torch.get_num_threads(), "precision": precision}


def wrap(
    accelerator: Accelerator,
    model: nn.Module,
    make_optimizers: Callable[[nn.Module], list[torch.optim.Optimizer]],
    compiled: bool = False,
) -> Trainable:
    """Make a model ready to be trained. The optimizers stay bare: the loop itself decides when they step."""
    if is_sharded(accelerator):
        _choose_shards(accelerator, model)
    if compiled and _can_compile(accelerator):
        _compile(model, accelerator.num_processes)
    wrapped = _sharded(accelerator, model) if is_sharded(accelerator) else accelerator.prepare(model)
    return Trainable(wrapped.train(), make_optimizers(model), accelerator)


def _sharded(accelerator: Accelerator, model: nn.Module) -> nn.Module:
    """The model as FSDP has it. An outline is filled afterwards: no rank holds more than its shards and one tensor."""
    from torch.distributed.fsdp import register_fsdp_forward_method

    values = {name: values_of(param) for name, param in model.named_parameters() if param.is_meta}
    # Accelerate refuses a model without an optimizer. Ours are made of the shards, and this one is forgotten.
    model, _ = accelerator.prepare(model, torch.optim.SGD([next(model.parameters())], lr=0.0))
    fill_shards(model, values, accelerator.device)
    if hasattr(model, "target_logits"):
        register_fsdp_forward_method(model, "target_logits")
    return model


def _can_compile(accelerator: Accelerator) -> bool:
    """Whether torch can compile kernels for this device; what is missing is reported once."""
    compiler = shutil.which(os.environ.get("CC") or "gcc") or shutil.which("clang")
    needed = {"the package triton": importlib.util.find_spec("triton"), "a C compiler (gcc, clang or CC)": compiler}
    missing = [name for name, found in needed.items() if not found] if accelerator.device.type == "cuda" else []
    if missing and accelerator.is_main_process:
        log.warning("train.compile=true needs %s; this run continues without it, slower", " and ".join(missing))
    return not missing


def _compile(model: nn.Module, num_processes: int) -> None:
    if num_processes == 1:
        model.compile(dynamic=True)
        return
    # Layer by layer: FSDP gathers weights before each, where a graph of the whole model would break, and DDP sends the
    # gradients of one while the next is computed. So dynamo need not cut graphs where DDP's messages begin.
    torch._dynamo.config.optimize_ddp = False
    for layer in layers_of(model):
        layer.forward = torch.compile(layer.forward, dynamic=True)


def _choose_shards(accelerator: Accelerator, model: nn.Module) -> None:
    """Shard layer by layer, and in half precision send weights as bf16 but sum gradients in float32: with accelerate's
    own policy, which sums them in bf16 too, 128 micro-batches lose 3.6% of a gradient."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    plugin = accelerator.state.fsdp_plugin
    plugin.cpu_ram_efficient_loading = False  # would send from the first rank what every rank can make
    plugin.transformer_cls_names_to_wrap = sorted({type(layer).__name__ for layer in layers_of(model)})
    if accelerator.mixed_precision == "bf16":
        # Autocast, as under DDP, decides which results are bf16; casting what enters a layer would round its angles.
        plugin.mixed_precision_policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        model.forward = accelerator.autocast()(model.forward)


def layers_of(model: nn.Module) -> list[nn.Module]:
    return [layer for part in model.modules() if isinstance(part, nn.ModuleList) for layer in part]


def bare_model(trainable: Trainable) -> Any:
    """The model without what DDP puts around it; under FSDP its weights are shards."""
    return trainable.accelerator.unwrap_model(trainable.model, keep_torch_compile=True)


class Evaluation(NamedTuple):
    """How a rank takes part in an evaluation."""

    loss: Callable[[Any], torch.Tensor]
    """Of a batch, summed over its targets."""
    target_logits: Callable[[Any], torch.Tensor]
    """Logits at the targets of a batch, past the wrapper that would hand out the loss only."""
    device: torch.device
    rank: int
    world_size: int
    """Between how many ranks the rows are shared."""
    sum_over_ranks: Callable[[torch.Tensor], torch.Tensor]
    """To be called once, after the last batch of this rank."""


class EvaluationStoppedError(Exception):
    """An evaluation ended before it was done, on every rank, as one of them was asked to stop."""


@contextlib.contextmanager
def evaluating(trainable: Trainable, stop: Callable[[], bool] | None = None) -> Iterator[Evaluation]:
    """The model as an evaluation needs it, without dropout; afterwards it is as before. All ranks take part. Where any
    rank is asked to `stop`, none computes another batch: all leave with an EvaluationStoppedError."""
    model, _, accelerator = trainable
    bare, training = bare_model(trainable), model.training
    is_split = is_sharded(accelerator)
    in_step = is_split or (stop is not None and accelerator.num_processes > 1)
    target_logits = getattr(bare, "target_logits", bare)

    def continues(here: bool) -> bool:
        """Whether this rank or another has one more batch."""
        stopped = stop is not None and stop()
        if in_step:
            here, stopped = _any_rank(here, stopped)
        if stopped and here:
            raise EvaluationStoppedError
        return here

    def computing(compute: Callable[[Any], torch.Tensor]) -> Callable[[Any], torch.Tensor]:
        def computed(batch: Any) -> torch.Tensor:
            continues(True)
            with accelerator.autocast():
                return compute(batch)

        return computed

    def catch_up() -> None:
        while in_step and continues(False):
            # FSDP computes together: a rank without a batch takes a token that counts nowhere.
            if is_split:
                with accelerator.autocast(), torch.no_grad():
                    target_logits(_one_token(accelerator.device))

    def sum_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
        catch_up()
        if accelerator.num_processes > 1:
            tensor = tensor.to(accelerator.device)
            torch.distributed.all_reduce(tensor)
        return tensor

    model.eval()
    try:
        place = (accelerator.device, accelerator.process_index, accelerator.num_processes)
        yield Evaluation(computing(bare), computing(target_logits), *place, sum_over_ranks)
        catch_up()
    finally:
        model.train(training)
        if is_split:
            _shard_again(model)


def _shard_again(model: nn.Module) -> None:
    """FSDP keeps the weights outside of layers gathered for a backward pass, which an evaluation has not: they would be
    saved as they were rounded for it, and be used again after an update."""
    from torch.distributed.fsdp import FSDPModule

    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def _any_rank(*here: bool) -> list[bool]:
    """Whether each of these holds on this rank or on another; a message between hosts."""
    ranks = torch.tensor(here, dtype=torch.int64)
    torch.distributed.all_reduce(ranks)
    return [num > 0 for num in ranks.tolist()]


def _one_token(device: torch.device) -> SimpleNamespace:
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    borders = torch.arange(2, dtype=torch.int32, device=device)
    return SimpleNamespace(
        input_ids=zero, position_ids=zero, cu_seqlens=borders, max_seqlen=1, target_index=zero, target_ids=zero
    )


def agree_on(accelerator: Accelerator, value: Value, source: int = 0) -> Value:
    """The value of one rank, on every rank. It travels as JSON, not as a pickle."""
    if accelerator.num_processes == 1:
        return value
    data = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
    size = torch.tensor([len(data)])
    torch.distributed.broadcast(size, src=source)
    if accelerator.process_index != source:
        data = data.new_empty(int(size))
    torch.distributed.broadcast(data, src=source)
    return json.loads(bytes(data.tolist()))


def write_gathered(
    accelerator: Accelerator,
    tensors: Mapping[str, Mapping[str, torch.Tensor]],
    write: Callable[[Iterator[torch.Tensor]], None],
) -> None:
    """Let the first rank write tensors that ranks share: `write` is given all of each in turn, one in memory at a time.
    If that fails, every rank fails with the same words."""
    gathered = gather_in_turn(tensors)
    failed = None
    if accelerator.is_main_process:
        try:
            write(gathered)
        except (OSError, ValueError) as error:  # a RuntimeError is torch's, of ranks that are lost
            failed = error
    for _ in gathered:
        pass  # the other ranks, or all of them where a file could not be written
    told = agree_on(accelerator, "" if failed is None else str(failed) or repr(failed))
    if told:
        raise failed or OSError(told)


def _check_trackers(names: list[str]) -> None:
    """Accelerate silently ignores a tracker that is not installed."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    available = {str(tracker.value) for tracker in get_available_trackers()}
    for name in names:
        known = sorted(str(kind) for kind in LOGGER_TYPE_TO_CLASS)
        if name not in known:
            raise ValueError(f"run.trackers: unknown tracker {name!r}{did_you_mean(name, known) or f'; {known}'}")
        if name not in available:
            extra = "; pip install 'bertkit[track]'" if name == "tensorboard" else ""
            raise ValueError(f"run.trackers: {name} is not installed{extra}")
