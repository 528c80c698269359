"""The learning rate and the batch of a step. Pure functions: no clock, no state, no process count."""

import math
from dataclasses import dataclass
from typing import Protocol

from bertkit.config.sections import OptimConfig, TrainConfig


class StepSection(Protocol):
    """What a step needs of a recipe's section `train`."""

    @property
    def clip_norm(self) -> float: ...
    @property
    def max_bad_steps(self) -> int: ...


@dataclass(kw_only=True)
class StepRules:
    """What all steps of a run have in common."""

    total_steps: int
    """A budget of minutes corrects it once, between two steps."""
    seed: int
    optim: OptimConfig
    train: StepSection


def lr_share(step: int, total_steps: int, config: OptimConfig) -> float:
    """The learning rate of a step (0 to total_steps - 1) as a share of its highest value."""
    warmup_steps = count_warmup(total_steps, config)
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if config.schedule == "wsd":
        decay_steps = round(config.decay * total_steps)
        done = (step - (total_steps - decay_steps)) / max(decay_steps, 1)
    else:
        done = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
    done = min(max(done, 0.0), 1.0)
    left = (1 + math.cos(math.pi * done)) / 2 if config.schedule == "cosine" else 1 - done
    return config.final_lr + (1 - config.final_lr) * left


def count_warmup(total_steps: int, config: OptimConfig) -> int:
    """Steps in which the learning rate rises."""
    return round(config.warmup * total_steps) if config.warmup_steps is None else config.warmup_steps


def batch_stages(total_steps: int, config: TrainConfig) -> tuple[tuple[int, int], ...]:
    """(first step, global batch) of each stage: the batch doubles from first_batch to global_batch in equal times."""
    first_batch = config.first_batch or config.global_batch
    doublings = round(math.log2(config.global_batch / first_batch))
    ramp = config.batch_warmup * total_steps
    stages = {round(ramp * i / max(doublings, 1)): first_batch * 2**i for i in range(doublings + 1)}
    return tuple(stages.items())


def steps_for_rows(num_rows: float, config: TrainConfig) -> int:
    """The fewest steps whose batches hold this many rows; at least one."""
    total_steps = 10**6
    stages = batch_stages(total_steps, config)
    ends = [first for first, _ in stages[1:]] + [total_steps]
    rows = sum((end - first) * batch for (first, batch), end in zip(stages, ends, strict=True))
    return max(math.ceil(num_rows * total_steps / rows - 1e-9), 1)
