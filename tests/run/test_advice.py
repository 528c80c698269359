"""Advice is given once, only where it is due, and names keys that the recipe has."""

import pytest

from bertkit.run.advice import ENOUGH_STEPS, Adviser

CALM = {"loss": 5.0, "input_stall": 0.0}


def adviser(total_steps: int = 1000, first_step: int = 0, unigram: float = 7.0, free: float = 0.5) -> Adviser:
    steps = {"total_steps": total_steps, "first_step": first_step}
    return Adviser(**steps, unigram=unigram, num_workers=1, free_memory=lambda: free)


def test_a_calm_run_gets_no_advice():
    watched = adviser()
    assert [list(watched.consider(step, CALM)) for step in (1, 100, 500, 1000)] == [[], [], [], []]


@pytest.mark.parametrize(
    ("watched", "step", "values", "remedy"),
    [
        (adviser(), 50, {**CALM, "input_stall": 0.5}, "run.num_workers=2"),
        (adviser(free=0.01), 50, CALM, "train.micro_batch"),
        (adviser(unigram=7.0), 400, {**CALM, "loss": 6.95}, "optim.lr"),
    ],
)
def test_advice_names_the_key_to_change_and_is_given_once(watched, step, values, remedy):
    (advice,) = watched.consider(step, values)
    assert remedy in advice
    assert list(watched.consider(step + 20, values)) == []


def test_advice_about_input_waits_for_enough_steps_to_mean_something():
    stalled = {**CALM, "input_stall": 0.5}
    for first_step in (0, 700):
        watched = adviser(first_step=first_step)
        told = {step: list(watched.consider(first_step + step, stalled)) for step in range(1, 40)}
        assert [step for step, advice in told.items() if advice] == [1 + ENOUGH_STEPS]


def test_a_stall_is_judged_by_all_the_steps_since_it_was_judged_last():
    """One slow step among many logged one by one is no stall; one that begins late is."""
    watched = adviser()
    stalls = [0.9] + [0.0] * (ENOUGH_STEPS - 1) + [0.3] * ENOUGH_STEPS
    told = [list(watched.consider(step, {**CALM, "input_stall": stall})) for step, stall in enumerate(stalls, start=2)]
    assert [step for step, advice in enumerate(told, start=1) if advice] == [2 * ENOUGH_STEPS]
    assert "30% of the time" in told[-1][0]


def test_a_loss_near_the_unigram_level_is_normal_at_the_start():
    assert list(adviser(unigram=7.0).consider(20, {**CALM, "loss": 7.1})) == []


def test_advice_names_only_keys_that_the_recipe_has():
    tuning = {"unigram": None, "num_workers": None, "memory_remedy": "a smaller train.micro_batch needs less"}
    watched = Adviser(total_steps=1000, free_memory=lambda: 0.01, **tuning)
    (advice,) = watched.consider(500, {"loss": 99.0, "input_stall": 0.9})
    assert advice == "memory is nearly full; a smaller train.micro_batch needs less"
