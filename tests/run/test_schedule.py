"""Rates and batches are pure functions of the step."""

from itertools import pairwise

import pytest
from telling import tells

from bertkit.config.sections import OptimConfig, TrainConfig
from bertkit.run.schedule import batch_stages, lr_share, steps_for_rows


def test_the_rate_rises_to_its_highest_value_and_falls_to_the_final_one():
    config = OptimConfig(schedule="linear", warmup=0.1, final_lr=0.1)
    shares = [lr_share(step, 100, config) for step in range(101)]
    assert shares[:11] == pytest.approx([(step + 1) / 11 for step in range(11)])
    assert max(shares) == shares[10] == 1.0
    assert shares[55] == pytest.approx(0.1 + 0.9 * 0.5)
    assert shares[100] == pytest.approx(0.1)


def test_a_cosine_is_half_way_at_half_time():
    config = OptimConfig(schedule="cosine", warmup=0.0)
    assert [lr_share(step, 8, config) for step in (0, 4, 8)] == pytest.approx([1.0, 0.5, 0.0])


def test_wsd_stays_constant_and_then_falls():
    config = OptimConfig(schedule="wsd", warmup=0.1, decay=0.2)
    shares = [lr_share(step, 100, config) for step in range(100)]
    assert set(shares[10:81]) == {1.0}
    assert shares[90] == pytest.approx(0.5)
    assert all(later < earlier for earlier, later in pairwise(shares[80:]))


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
@pytest.mark.parametrize("total_steps", [1, 2, 3, 17])
def test_every_step_of_a_short_run_learns(schedule, total_steps):
    config = OptimConfig(schedule=schedule)
    assert all(0 < lr_share(step, total_steps, config) <= 1 for step in range(total_steps))


def test_the_batch_doubles_in_equal_times():
    config = TrainConfig(steps=100, first_batch=8, global_batch=32, batch_warmup=0.2)
    assert batch_stages(100, config) == ((0, 8), (10, 16), (20, 32))
    assert batch_stages(100, TrainConfig(steps=100, global_batch=32)) == ((0, 32),)


def test_a_ramp_over_too_few_steps_has_the_stages_that_fit():
    config = TrainConfig(steps=1, first_batch=1, global_batch=64, batch_warmup=0.1)
    assert batch_stages(1, config) == ((0, 64),)


def test_a_token_budget_becomes_the_fewest_steps_that_reach_it():
    assert steps_for_rows(320, TrainConfig(tokens=1, global_batch=32)) == 10
    assert steps_for_rows(321, TrainConfig(tokens=1, global_batch=32)) == 11
    ramped = TrainConfig(tokens=1, first_batch=16, global_batch=32, batch_warmup=0.5)
    assert steps_for_rows(2400, ramped) == 100  # 50 steps of 16 rows, 50 of 32


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({}, "steps, tokens, minutes … none"),
        ({"steps": 5, "minutes": 2.0}, "got steps and minutes"),
        ({"steps": -1}, "steps … 0 … -1"),
        ({"minutes": 0.0}, "minutes … (0, 1e18] … 0.0"),
        ({"steps": 1, "first_batch": 3}, "first_batch … global_batch=256 … 3"),
        ({"steps": 1, "global_batch": 0}, "global_batch … 1 … 0"),
    ],
)
def test_an_impossible_budget_or_batch_is_refused(wrong, complaint):
    with pytest.raises(ValueError) as caught:
        TrainConfig(**wrong)
    assert tells(str(caught.value), complaint)
