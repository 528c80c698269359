"""A step enters; its learning rate and its batch leave. Pure functions: no clock, no state, no process count."""

import math

from bertkit.training.config import OptimConfig, TrainConfig


def lr_share(step: int, total_steps: int, config: OptimConfig) -> float:
    """The learning rate of a step (0 to total_steps - 1) as a share of its highest value."""
    warmup_steps = round(config.warmup * total_steps)
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


def batch_stages(total_steps: int, config: TrainConfig) -> list[tuple[int, int]]:
    """(first step, global batch) of each stage: the batch doubles from first_batch to global_batch in equal times."""
    if config.first_batch is None or config.first_batch == config.global_batch:
        return [(0, config.global_batch)]
    doublings = round(math.log2(config.global_batch / config.first_batch))
    ramp = config.batch_warmup * total_steps
    return [(round(ramp * i / doublings), config.first_batch * 2**i) for i in range(doublings + 1)]


def rows_before(step: int, total_steps: int, config: TrainConfig) -> int:
    """Rows of all steps before this one: where the step starts in the endless order of rows."""
    stages = batch_stages(total_steps, config)
    ends = [start for start, _ in stages[1:]] + [max(step, stages[-1][0])]
    return sum(batch * max(min(step, end) - start, 0) for (start, batch), end in zip(stages, ends, strict=True))


def batch_of_step(step: int, total_steps: int, config: TrainConfig) -> int:
    return next(batch for start, batch in reversed(batch_stages(total_steps, config)) if step >= start)


def steps_for_rows(num_rows: float, config: TrainConfig) -> int:
    """The fewest steps whose batches hold so many rows; at least one."""
    mean_batch = rows_before(10**6, 10**6, config) / 10**6
    return max(math.ceil(num_rows / mean_batch - 1e-9), 1)
