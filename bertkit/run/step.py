"""One optimizer step: micro-batches enter, the summed loss over the global count is followed downhill once.

The law: whatever the split into micro-batches and ranks, the gradient is that of (sum of losses over all masked
tokens of the step) / (number of them). So nothing here averages averages.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from bertkit.run.state import gather_full
from data_pipelines.masks.keyed import fold


class Batch(Protocol):
    """What a step needs of a batch; the model, which is given it, may need more."""

    @property
    def input_ids(self) -> Any: ...
    @property
    def target_ids(self) -> Any: ...
    def to(self, device: torch.device, non_blocking: bool = False) -> Any: ...


class StepResult(NamedTuple):
    """What a step did, agreed over all ranks."""

    loss: float
    """Mean over the masked tokens of the whole step."""
    grad_norm: float
    """Before clipping."""
    num_targets: int
    num_tokens: int
    applied: bool
    """False where the loss or a gradient was not finite: weights and moments are as they were."""
    stop: bool
    """Whether any rank was asked to stop."""


def train_step(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    batches: Sequence[Batch],
    accelerator: Accelerator,
    *,
    seed: int,
    step: int,
    clip_norm: float = 0.0,
    stop: Callable[[], bool] = lambda: False,
) -> StepResult:
    """Accumulate this rank's micro-batches, agree with the other ranks, and step, or skip together. Whether this rank
    was asked to `stop` is looked at when they agree, so that the step in which the signal came can be the last."""
    counts = [sum(len(batch.target_ids) for batch in batches), sum(len(batch.input_ids) for batch in batches)]
    # Counts are known to the host, so it never waits for the device to add them up over ranks.
    num_targets, num_tokens = _summed(accelerator, torch.tensor(counts)).tolist()
    losses = accumulate_gradients(model, batches, accelerator, num_targets=num_targets, seed=seed, step=step)
    params = [param for param in model.parameters() if param.grad is not None]
    norm = gather_full(nn.utils.get_total_norm([param.grad for param in params if param.grad is not None]))

    *losses_here, norm_here = torch.stack([*losses, norm]).double()
    told = torch.stack([sum(losses_here, torch.zeros_like(norm_here)), norm_here, torch.full_like(norm_here, stop())])
    # The one place where the host waits for the device; the branch needs it.
    loss_sum, norm_sum, asked = _summed(accelerator, told).tolist()
    applied = math.isfinite(loss_sum) and math.isfinite(norm_sum)
    if applied:
        if clip_norm:
            nn.utils.clip_grads_with_norm_(params, clip_norm, norm)
        for optimizer in optimizers:
            optimizer.step()
    for param in params:
        param.grad = None
    mean, grad_norm = loss_sum / max(num_targets, 1), norm_sum / accelerator.num_processes
    return StepResult(mean, grad_norm, num_targets, num_tokens, applied, bool(asked))


def accumulate_gradients(
    model: nn.Module,
    batches: Sequence[Batch],
    accelerator: Accelerator,
    *,
    num_targets: int,
    seed: int,
    step: int,
) -> list[Tensor]:
    """Add the gradients of (sum of losses / num_targets) over all ranks; return the loss of each micro-batch here."""
    # DDP and FSDP average gradients over ranks; the law wants their sum.
    scale = accelerator.num_processes / max(num_targets, 1)
    losses = []
    for index, batch in enumerate(batches):
        seed_dropout(seed, step, accelerator.process_index * len(batches) + index)
        last = index + 1 == len(batches)
        with contextlib.nullcontext() if last else accelerator.no_sync(model):
            loss = model(batch.to(accelerator.device, non_blocking=True))
            (loss * scale).backward()
        losses.append(loss.detach())
    return losses


def seed_dropout(seed: int, step: int, micro_batch: int) -> None:
    """Make the dropout of a micro-batch a function of its place in the run, not of what ran before it."""
    torch.manual_seed(fold(seed, step, micro_batch))


def _summed(accelerator: Accelerator, values: Tensor) -> Tensor:
    """Sums over all ranks, on the device where the values are."""
    if accelerator.num_processes > 1:
        torch.distributed.all_reduce(values)
    return values
