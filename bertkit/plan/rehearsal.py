"""One optimizer step of a recipe on a number of fake GPUs, and what it did: kernels, memory, messages."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertkit.config.sections import OptimConfig
from bertkit.plan.ranks import answer_messages, fake_parameters, fake_ranks
from bertkit.plan.watch import Kernel, Message, Watch
from bertkit.run.optim import build_optimizers, set_lr
from bertkit.run.ranks import Trainable, layers_of, wrap
from bertkit.run.step import StepResult, train_step
from data_pipelines.masks.batch import PackedBatch

# T tokens in the pack, M masked tokens, S sequences


class Setting(NamedTuple):
    """Where and how a step is rehearsed."""

    num_gpus: int = 1
    launch_file: Path | None = None
    """Of accelerate, where there are several GPUs."""
    precision: str = "bf16"
    compiled: bool = False
    rank: int = 0


class Shape(NamedTuple):
    """Of one micro-batch."""

    lengths: tuple[int, ...]
    """Of its sequences."""
    num_targets: int

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)


class Rehearsal(NamedTuple):
    """What a step of three micro-batches did on one rank."""

    watch: Watch
    result: StepResult
    num_parameters: int
    weights: int
    """Bytes on this GPU, as the three below; all but activations stay for the whole run."""
    gradients: int
    moments: int
    activations: int
    """Everything else at the peak: what the backward pass needs, and what a kernel needs for a moment."""
    micro_batch: list[Kernel]
    update: list[Kernel]
    """The rest of the step, once: norm, clipping, optimizers."""
    messages: list[Message]
    """Of a micro-batch that is not the last."""

    @property
    def peak(self) -> int:
        return self.watch.memory.peak


NUM_MICRO_BATCHES = 3
"""The first makes gradients, the second adds to them, the last sends them."""


def rehearse(
    model: nn.Module,
    optim: OptimConfig,
    shape: Shape,
    setting: Setting,
    make_batch: Callable[[Shape], PackedBatch] | None = None,
    lr_scale: Callable[[str], float] = lambda name: 1.0,
) -> Rehearsal:
    """Take one step of an outline of a model, whose parameters become fake, on batches of masked tokens or others."""
    make_batch = make_batch or fake_batch
    with fake_ranks(setting.num_gpus, setting.launch_file, setting.precision, setting.rank) as accelerator:
        fake_parameters(model, accelerator.device)
        make_optimizers = partial(build_optimizers, config=optim, lr_scale=lr_scale)
        trainable = wrap(accelerator, model, make_optimizers, setting.compiled)
        answer_messages(trainable.model)
        set_lr(trainable.optimizers, 1.0)
        _make_moments(trainable)
        params = list(trainable.model.parameters())
        moments = [
            value
            for optimizer in trainable.optimizers
            for state in optimizer.state.values()
            for value in state.values()
        ]
        watch = Watch(shape.lengths)
        if setting.num_gpus > 1:
            for layer in layers_of(model):
                layer.register_forward_pre_hook(watch.border)
                layer.register_full_backward_pre_hook(watch.border)
        weights, held = watch.memory.note_all(params), watch.memory.note_all(moments)
        marks: list[tuple[int, int]] = []
        batches = [_Marked(make_batch(shape), watch, marks) for _ in range(NUM_MICRO_BATCHES)]
        with watch:
            result = train_step(
                trainable.model, trainable.optimizers, batches, accelerator, seed=0, step=0, clip_norm=1.0
            )
        gradients = sum(_bytes(param) for param in params if param.requires_grad)
        (_, _), (start, sent), (end, all_sent) = marks
        second, last = watch.kernels[start:end], watch.kernels[end:]
        return Rehearsal(
            watch=watch,
            result=result,
            num_parameters=sum(param.numel() for param in params),
            weights=weights,
            gradients=gradients,
            moments=held,
            activations=watch.memory.peak - weights - held - gradients,
            micro_batch=second,
            update=last[len(second) :],
            messages=watch.messages[sent:all_sent],
        )


def fake_batch(shape: Shape) -> PackedBatch:
    """Inside fake mode: a batch of the collator's, on the host."""
    num_tokens, num_targets = shape.num_tokens, shape.num_targets

    def ids(count: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(count, dtype=dtype)

    return PackedBatch(
        input_ids=ids(num_tokens),
        position_ids=ids(num_tokens),
        cu_seqlens=ids(len(shape.lengths) + 1, torch.int32),
        max_seqlen=max(shape.lengths),
        target_index=ids(num_targets),
        target_ids=ids(num_targets),
        target_kind=ids(num_targets, torch.int8),
        target_starts_word=ids(num_targets, torch.bool),
    )


class _Marked:
    """A batch that notes when its micro-batch begins."""

    def __init__(self, batch: PackedBatch, watch: Watch, marks: list[tuple[int, int]]):
        self.batch, self.watch, self.marks = batch, watch, marks
        self.input_ids, self.target_ids = batch.input_ids, batch.target_ids

    def to(self, device: torch.device, non_blocking: bool = False) -> PackedBatch:
        self.marks.append((len(self.watch.kernels), len(self.watch.messages)))
        return self.batch.to(device, non_blocking=non_blocking)


def _make_moments(trainable: Trainable) -> None:
    """From the second step on the optimizers' state is there."""
    for param in trainable.model.parameters():
        param.grad = torch.zeros_like(param) if param.requires_grad else None
    for optimizer in trainable.optimizers:
        optimizer.step()
    trainable.model.zero_grad(set_to_none=True)


def _bytes(param: Tensor) -> int:
    local = param.to_local() if hasattr(param, "to_local") else param
    return local.numel() * local.element_size()


def even_shape(seq_len: int, num_rows: int, rate: float) -> Shape:
    """Full rows of two sequences each."""
    first = round(0.35 * seq_len)
    lengths = (first, seq_len - first) * num_rows
    return Shape(lengths, max(1, int(seq_len * num_rows * rate)))
