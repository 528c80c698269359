"""A budget as a number of steps: counted for tokens; for minutes measured at the start and corrected once.

The schedule never reads a clock. Each number of steps is in run.json before a step depends on it, so that every resume
repeats the run with the same numbers.
"""

import math
import statistics
from collections.abc import Iterator
from pathlib import Path

from bertkit.config.recipe import Recipe
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective
from bertkit.pretrain.stored_rows import order_of_shards
from bertkit.run.folder import read_facts, write_facts
from bertkit.run.log import RunLog
from bertkit.run.loop import run_steps
from bertkit.run.ranks import Trainable, agree_on
from bertkit.run.schedule import StepRules, batch_stages, steps_for_rows
from bertkit.run.state import LoopState, snapshot
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.loader import RowCollator, load_steps
from data_pipelines.masks.plan import Plan

_WARM_UP_STEPS, _MEASURED_STEPS = 2, 3
_MEASURED_SHARE, _MEASURED_SECONDS = 0.05, 10.0
_CORRECTED_SHARE = 0.25
"""Share of the steps after which their number is corrected; those of an objective's opening do not count."""
_FEW_STEPS = 100
"""A run of fewer is far below what any recipe is made for."""
_WORTH_TELLING = 0.1
_ENDLESS = 10**9

Lengths = list[tuple[int, int]]
"""(first step, number of steps of the whole run): what is planned from that step on. One, or two once corrected."""


def decide_steps(
    recipe: Recipe, data: PretrainingData, objective: Objective, trainable: Trainable, spent: float
) -> int:
    """How many steps fit the recipe's budget after `spent` seconds of it. Model and optimizers stay as they were."""
    train = recipe.train
    if train.steps is not None:
        return train.steps
    if train.tokens is not None:
        return steps_for_rows(train.tokens * len(data.train) / data.train.num_tokens, train)
    assert train.minutes is not None
    long_enough = min(_MEASURED_SECONDS, _MEASURED_SHARE * train.minutes * 60)
    later = objective.make_later_collator or objective.make_collator
    parts = ((objective.opening, objective.make_collator), (1 - objective.opening, later))
    seconds = sum(
        share * _time_steps(recipe, data, trainable, long_enough, make_collator(_ENDLESS))
        for share, make_collator in parts
        if share
    )
    return agree_on(trainable.accelerator, steps_for_rows(max(0.0, train.minutes * 60 - spent) / seconds, train))


def load_budget(
    recipe: Recipe,
    data: PretrainingData,
    objective: Objective,
    trainable: Trainable,
    state: LoopState,
    rules: StepRules,
    log: RunLog,
) -> Iterator[tuple[int, list[PackedBatch]]]:
    """The micro-batches of every step that is left. Where the budget is minutes, `rules.total_steps` is corrected on
    the way, once in a run however often it resumes."""
    lengths = agree_on(trainable.accelerator, read_lengths(Path(recipe.run.dir)))
    minutes, (_, planned), pace = recipe.train.minutes, lengths[-1], _Pace(state)
    opening = round(objective.opening * planned) if objective.opening < 1 else 0
    few = _WARM_UP_STEPS + _MEASURED_STEPS
    border = max(opening + math.ceil(_CORRECTED_SHARE * (planned - opening)), opening + few, state.step + few)
    if minutes is not None and len(lengths) == 1 and border < planned:
        plan = make_plan(recipe, data, lengths)
        batches_of_steps = _load(
            recipe, data, objective.make_collator(planned), trainable, plan, range(state.step, border)
        )
        for step, batches in batches_of_steps:
            if step == opening:
                pace = _Pace(state)
            yield step, batches
            pace.note(plan.batch_of_step(step))
        rows_left = max(0.0, minutes * 60 - state.seconds) / pace.seconds_per_row()
        total = max(border + 1, steps_for_rows(plan.rows_before_step(border) + rows_left, recipe.train))
        lengths.append((border, agree_on(trainable.accelerator, total)))
        _write_down(recipe, lengths, log, trainable.accelerator.is_main_process)
    elif minutes is not None and state.step == 0:
        _advise_if_few(planned, log, state.step)
    plan, ends = make_plan(recipe, data, lengths), [*(first for first, _ in lengths[1:]), lengths[-1][1]]
    for (first, total), end in zip(lengths, ends, strict=True):
        if state.step < end:
            rules.total_steps = total
            # Corrected minutes keep the opening that was planned first, which ended before the correction.
            later = objective.make_later_collator if first and opening and minutes is not None else None
            collator = (later or objective.make_collator)(total)
            yield from _load(recipe, data, collator, trainable, plan, range(max(first, state.step), end))


def read_lengths(folder: Path) -> Lengths:
    """What run.json says of the number of steps."""
    facts = read_facts(folder) or {}
    return [(first, total) for first, total in facts.get("lengths", [(0, facts["total_steps"])])]


def make_plan(recipe: Recipe, data: PretrainingData, lengths: Lengths) -> Plan:
    """Which rows each step has. A batch that grows does so as each length has it, from its first step on."""
    stages: dict[int, int] = {}
    for start, total_steps in lengths:
        stages = {first: batch for first, batch in stages.items() if first < start}
        for first, batch in batch_stages(total_steps, recipe.train):
            stages[max(first, start)] = batch
    order = order_of_shards(data.train, recipe.data, recipe.run.seed)
    return Plan(len(data.train), tuple(stages.items()), recipe.run.seed, order)


class _Pace:
    """What steps take, as the loop has counted it in its state."""

    def __init__(self, state: LoopState):
        self._state, self._until = state, state.seconds
        self._seconds: list[float] = []

    def note(self, num_rows: int) -> None:
        """A step of this many rows is done."""
        self._seconds.append((self._state.seconds - self._until) / num_rows)
        self._until = self._state.seconds

    def num_steady(self) -> int:
        return len(self._seconds) - _WARM_UP_STEPS

    def seconds_per_row(self) -> float:
        """The median, which a busy moment does not move. The first steps allocate memory and do not count."""
        return statistics.median(self._seconds[_WARM_UP_STEPS:])


def _time_steps(
    recipe: Recipe, data: PretrainingData, trainable: Trainable, long_enough: float, collator: RowCollator
) -> float:
    """Seconds that a row takes, from real steps of at least `long_enough` seconds; weights and moments are put back."""
    put_back = snapshot(trainable.model, trainable.optimizers)
    order = order_of_shards(data.train, recipe.data, recipe.run.seed)
    plan = Plan(len(data.train), recipe.train.global_batch, recipe.run.seed, order)
    batches_of_steps = _load(recipe, data, collator, trainable, plan, range(_ENDLESS))
    state = LoopState()
    pace = _Pace(state)
    rules = StepRules(total_steps=_ENDLESS, seed=0, optim=recipe.optim, train=recipe.train)
    for _ in run_steps(trainable, batches_of_steps, state, rules):
        pace.note(recipe.train.global_batch)
        # The first rank decides when it is enough, so that all leave after the same step.
        if agree_on(trainable.accelerator, pace.num_steady() >= _MEASURED_STEPS and state.seconds >= long_enough):
            break
    put_back()
    return pace.seconds_per_row()


def _load(
    recipe: Recipe, data: PretrainingData, collator: RowCollator, trainable: Trainable, plan: Plan, steps: range
) -> Iterator[tuple[int, list[PackedBatch]]]:
    return load_steps(
        data.train,
        plan,
        collator,
        steps,
        rank=trainable.accelerator.process_index,
        world_size=trainable.accelerator.num_processes,
        micro_batch=recipe.train.micro_batch,
        num_workers=recipe.run.num_workers,
    )


def _write_down(recipe: Recipe, lengths: Lengths, log: RunLog, is_first: bool) -> None:
    """Record the corrected number of steps, before a step depends on it, and say what is worth saying."""
    folder, ((_, planned), (step, total)) = Path(recipe.run.dir), lengths
    if is_first:
        write_facts(folder, (read_facts(folder) or {}) | {"total_steps": total, "lengths": lengths})
    told = abs(total - planned) > _WORTH_TELLING * planned
    text = f"step {step}  {total} steps fit train.minutes={recipe.train.minutes:g}, where {planned} were expected"
    log.record("budget", step, {"planned_steps": planned, "total_steps": total}, text if told else "")
    _advise_if_few(total, log, step)


def _advise_if_few(total_steps: int, log: RunLog, step: int) -> None:
    if total_steps < _FEW_STEPS:
        advice = (
            f"{total_steps} steps are far fewer than recipes are made for; an idle machine, "
            "a larger train.minutes or a smaller train.global_batch gives more"
        )
        log.record("advice", step, {"text": advice}, f"advice: {advice}")
