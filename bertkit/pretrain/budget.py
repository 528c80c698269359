"""A budget as a number of steps: counted for tokens, measured once for minutes, fixed from then on."""

from bertkit.config.recipe import Recipe
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective
from bertkit.run.loop import StepRules, run_steps
from bertkit.run.ranks import Trainable, agree_on
from bertkit.run.schedule import steps_for_rows
from bertkit.run.state import LoopState, snapshot
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan

_WARM_UP_STEPS, _MEASURED_STEPS = 2, 3
_MEASURED_SHARE, _MEASURED_SECONDS = 0.05, 10.0
_ENDLESS = 10**9


def decide_steps(
    recipe: Recipe, data: PretrainingData, objective: Objective, trainable: Trainable, spent: float = 0.0
) -> int:
    """How many steps fit the recipe's budget, of which `spent` seconds are gone. Model and optimizers are left as
    they were."""
    train = recipe.train
    if train.steps is not None:
        return train.steps
    if train.tokens is not None:
        return steps_for_rows(train.tokens * len(data.train) / data.train.num_tokens, train)
    assert train.minutes is not None
    long_enough = min(_MEASURED_SECONDS, _MEASURED_SHARE * train.minutes * 60)
    seconds = seconds_per_row(recipe, data, objective, trainable, long_enough)
    return agree_on(trainable.accelerator, steps_for_rows(max(0.0, train.minutes * 60 - spent) / seconds, train))


def seconds_per_row(
    recipe: Recipe, data: PretrainingData, objective: Objective, trainable: Trainable, long_enough: float
) -> float:
    """Time a few real steps, for at least `long_enough` seconds, then put weights and moments back."""
    accelerator = trainable.accelerator
    put_back = snapshot(trainable.model, trainable.optimizers)
    batches_of_steps = load_steps(
        data.train,
        Plan(len(data.train), recipe.train.global_batch, recipe.run.seed),
        objective.make_collator(_ENDLESS),
        range(_ENDLESS),
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        micro_batch=recipe.train.micro_batch,
        num_workers=recipe.run.num_workers,
    )
    state = LoopState()
    rules = StepRules(total_steps=_ENDLESS, seed=0, optim=recipe.optim, train=recipe.train)
    for _ in run_steps(trainable, batches_of_steps, state, rules):
        if state.step <= _WARM_UP_STEPS:
            warm_up_seconds = state.seconds
            continue
        measured, seconds = state.step - _WARM_UP_STEPS, state.seconds - warm_up_seconds
        # The first rank decides when it is enough, so that all leave after the same step.
        if agree_on(accelerator, measured >= _MEASURED_STEPS and seconds >= long_enough):
            break
    put_back()
    return seconds / (measured * recipe.train.global_batch)
