"""Numbers are told as they are, advice once and only where it is due, and a resume leaves no doubled lines."""

import json

import pytest
import torch

from bertkit.run.advice import ENOUGH_STEPS, Adviser, _free_of_container, _free_of_machine, free_memory
from bertkit.run.log import RunLog, cut_metrics
from bertkit.run.state import LoopState
from bertkit.run.step import StepResult

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


def test_memory_of_a_machine_and_of_a_container_by_hand(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  250 kB\n")
    assert _free_of_machine(tmp_path / "meminfo") == 0.25
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("970\n")
    (tmp_path / "memory.stat").write_text("anon 9\ninactive_file 20\n")
    assert _free_of_container(tmp_path) == 0.05
    (tmp_path / "memory.max").write_text("max\n")
    assert _free_of_container(tmp_path) == 1.0
    assert _free_of_machine(tmp_path / "nowhere") == _free_of_container(tmp_path / "nowhere") == 1.0
    assert 0 < free_memory(torch.device("cpu")) <= 1


def make_log(folder, state: LoopState, *, log_every: int, total_steps: int, **options) -> RunLog:
    given = {"share_of_peak": lambda tokens, targets, seconds: 0.0, "track": lambda values, step: None, **options}
    return RunLog(folder, state, total_steps=total_steps, log_every=log_every, **given)


def logged_run(folder, *, waited: float = 0.0, loss: float = 5.0, free: float = 0.5, steps: int = 3) -> list[str]:
    """The advice that a run of such steps writes down, each of a second."""
    state = LoopState()
    with make_log(folder, state, total_steps=steps, log_every=steps, adviser=adviser(steps, free=free)) as log:
        for _ in range(steps):
            state.step += 1
            log.step(result(loss, 1), 0.5, 1.0, waited)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["text"] for line in lines if line["kind"] == "advice"]


def test_a_run_says_what_to_change_when_input_stalls_memory_is_full_or_the_loss_is_flat(tmp_path, capsys):
    for name, options, remedy in (
        ("input", {"waited": 0.5, "steps": 1 + ENOUGH_STEPS}, "run.num_workers=2"),
        ("memory", {"free": 0.01}, "train.micro_batch"),
        ("flat", {"loss": 6.95, "steps": 400}, "optim.warmup"),
    ):
        (tmp_path / name).mkdir()
        (advice,) = logged_run(tmp_path / name, **options)
        assert remedy in advice
        assert f"advice: {advice}" in capsys.readouterr().err


def result(loss: float, num_targets: int, applied: bool = True) -> StepResult:
    return StepResult(loss, 1.0, num_targets, 10 * num_targets, applied, False)


def test_the_logged_loss_is_the_mean_over_all_targets_of_the_window(tmp_path, capsys):
    tracked = []
    state = LoopState(seconds=5.0, tokens=100)
    with make_log(
        tmp_path,
        state,
        total_steps=4,
        log_every=3,
        adviser=adviser(),
        track=lambda values, step: tracked.append((step, values)),
    ) as log:
        for done in (result(9.0, 1), result(2.0, 1), result(5.0, 3), result(1.0, 7, applied=False)):
            state.step, state.tokens, state.seconds = state.step + 1, state.tokens + done.num_tokens, state.seconds + 2
            log.step(done, 0.5, 2.0, 0.5)
        log.record("eval", 4, {"loss": 3.0, "buckets": {}}, "a line for the reader")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["step"]) for line in lines] == [("train", 1), ("train", 3), ("train", 4), ("eval", 4)]
    assert lines[1]["loss"] == pytest.approx((2.0 * 1 + 5.0 * 3) / 4)
    assert [line["skipped"] for line in lines[:3]] == [0, 0, 1]
    assert lines[2]["tokens"] == 100 + 10 * 12
    assert lines[2]["seconds"] == 5.0 + 4 * 2.0
    assert lines[1]["input_stall"] == 0.25
    assert tracked[-1] == (4, {"eval/loss": 3.0})
    shown = capsys.readouterr().err
    assert "step 3/4" in shown
    assert "a line for the reader" in shown


def test_lines_beyond_the_checkpoint_and_a_torn_line_are_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 5}\n{"step": 10}\n{"step": 12}\n{"step": 1')
    cut_metrics(tmp_path, 10)
    assert path.read_text() == '{"step": 5}\n{"step": 10}\n'
    cut_metrics(tmp_path / "absent", 10)
