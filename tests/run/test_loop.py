"""The one loop: it counts, it ends after too many bad steps, and what its caller does in between costs no time."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from accelerate import Accelerator

from bertkit.config.sections import OptimConfig
from bertkit.run import loop
from bertkit.run.loop import StepRules, run_steps
from bertkit.run.ranks import Trainable
from bertkit.run.state import LoopState


class Batch(NamedTuple):
    input_ids: torch.Tensor
    target_ids: torch.Tensor

    def to(self, device, non_blocking=False):
        return self


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, batch):
        return (self.weight * batch.target_ids).sum()


GOOD = Batch(torch.zeros(10), torch.tensor([1.0, 2.0]))
BAD = GOOD._replace(target_ids=torch.tensor([1.0, float("nan")]))


def steps(*batches: Batch, first: int = 0):
    return [(step, [batch]) for step, batch in enumerate(batches, start=first)]


def make_trainable() -> Trainable:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer.param_groups[0]["highest_lr"] = 1.0
    return Trainable(model, [optimizer], Accelerator(cpu=True))


def make_rules(total_steps: int = 4, max_bad_steps: int = 2) -> StepRules:
    train = SimpleNamespace(clip_norm=0.0, max_bad_steps=max_bad_steps)
    return StepRules(total_steps=total_steps, seed=0, optim=OptimConfig(schedule="linear", warmup=0.0), train=train)


def test_a_step_is_counted_when_it_is_yielded_whether_it_was_applied_or_skipped():
    state, seen = LoopState(step=4, tokens=100), []
    batches = steps(GOOD, BAD, GOOD, first=4)
    for result in run_steps(make_trainable(), batches, state, make_rules(total_steps=8)):
        seen.append((state.step, state.tokens, state.bad_steps, result.applied))
    assert seen == [(5, 110, 0, True), (6, 120, 1, False), (7, 130, 0, True)]


def test_each_step_has_the_rate_of_its_schedule():
    trainable, rates = make_trainable(), []
    for _ in run_steps(trainable, steps(GOOD, GOOD, GOOD, GOOD), LoopState(), make_rules()):
        rates.append(trainable.optimizers[0].param_groups[0]["lr"])
    assert rates == [1.0, 0.75, 0.5, 0.25]


def test_skipped_steps_in_a_row_end_the_run_with_a_remedy_and_others_do_not():
    running = run_steps(make_trainable(), steps(BAD, GOOD, BAD, BAD), LoopState(), make_rules(max_bad_steps=2))
    assert [next(running).applied for _ in range(3)] == [False, True, False]
    with pytest.raises(FloatingPointError, match=r"2 steps.* 4.*optim.lr"):
        next(running)


def test_a_wish_to_stop_is_in_the_result_of_the_step_it_came_in():
    asked = iter([False, True])
    running = run_steps(make_trainable(), steps(GOOD, GOOD), LoopState(), make_rules(), stop=lambda: next(asked))
    assert [result.stop for result in running] == [False, True]


def test_what_the_caller_does_between_steps_is_no_training_time(monkeypatch):
    now = 0.0
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now))

    def slow_batches():
        nonlocal now
        for batch in steps(GOOD, GOOD, GOOD):
            now += 1.0
            yield batch

    state, log = LoopState(seconds=10.0), Log()
    for _ in run_steps(make_trainable(), slow_batches(), state, make_rules(), log):
        now += 1000.0
    assert state.seconds == 13.0
    assert log.seen == [(1.0, 1.0)] * 3


class Log:
    """Notes what it is told of time."""

    def __init__(self):
        self.seen = []

    def step(self, result, lr, seconds, waited):
        self.seen.append((seconds, waited))


def test_batches_of_another_step_than_the_next_are_a_mistake():
    with pytest.raises(AssertionError):
        next(run_steps(make_trainable(), steps(GOOD, first=3), LoopState(), make_rules()))


def test_the_best_step_is_the_first_with_the_highest_score():
    state, found = LoopState(), []
    for step, score in enumerate([-3.0, -2.0, -2.0, -2.5, -1.0], start=1):
        state.step = step
        found.append((state.note_score(score), state.best_step, state.stale))
    assert found == [(True, 1, 0), (True, 2, 0), (False, 2, 1), (False, 2, 2), (True, 5, 0)]
    assert state.best_score == -1.0
