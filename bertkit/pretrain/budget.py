"""A budget enters, a number of steps leaves: counted for tokens, measured once for minutes, fixed from then on."""

import copy
import time

import torch
from accelerate import Accelerator
from torch import nn

from bertkit.config.recipe import Recipe
from bertkit.pretrain.inputs import Inputs
from bertkit.run.optim import set_lr
from bertkit.run.ranks import agree_on
from bertkit.run.schedule import steps_for_rows
from bertkit.run.state import gather_state, restore_state
from bertkit.run.step import train_step
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan

_WARM_UP_STEPS, _MEASURED_STEPS = 2, 3
_MEASURED_SHARE, _MEASURED_SECONDS = 0.05, 10.0


def decide_steps(
    recipe: Recipe,
    inputs: Inputs,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    accelerator: Accelerator,
    spent: float = 0.0,
) -> int:
    """How many steps fit the recipe's budget, of which `spent` seconds are gone. Model and optimizers are left as
    they were."""
    train = recipe.train
    if train.steps is not None:
        return train.steps
    if train.tokens is not None:
        return steps_for_rows(train.tokens * len(inputs.train) / inputs.train.num_tokens, train)
    assert train.minutes is not None
    seconds = seconds_per_row(recipe, inputs, model, optimizers, accelerator)
    return agree_on(accelerator, steps_for_rows(max(0.0, train.minutes * 60 - spent) / seconds, train))


def seconds_per_row(
    recipe: Recipe,
    inputs: Inputs,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    accelerator: Accelerator,
) -> float:
    """Time a few real steps, then put weights and moments back."""
    before = copy.deepcopy(gather_state(model, optimizers))
    assert recipe.train.minutes is not None
    long_enough = min(_MEASURED_SECONDS, _MEASURED_SHARE * recipe.train.minutes * 60)
    steps = load_steps(
        inputs.train,
        Plan(len(inputs.train), recipe.train.global_batch, recipe.run.seed),
        MaskingCollator.from_config(
            inputs.tokenizer, recipe.mask, seed=recipe.run.seed, total_steps=10**9, layout="packed"
        ),
        first_step=0,
        last_step=10**9,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        micro_batch=recipe.train.micro_batch,
        num_workers=recipe.run.num_workers,
    )
    set_lr(optimizers, 0.0)
    start, measured = time.perf_counter(), 0
    for step, batches in steps:
        train_step(model, optimizers, batches, accelerator, seed=0, step=step, clip_norm=recipe.train.clip_norm)
        measured = step + 1 - _WARM_UP_STEPS
        if measured <= 0:
            start = time.perf_counter()
            continue
        # The first rank decides when it is enough, so that all leave after the same step.
        if agree_on(accelerator, measured >= _MEASURED_STEPS and time.perf_counter() - start >= long_enough):
            break
    elapsed = time.perf_counter() - start
    restore_state(model, optimizers, before)
    return elapsed / (measured * recipe.train.global_batch)
