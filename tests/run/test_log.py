"""Numbers are logged as they are, advice beside them, and a resume leaves no doubled lines."""

import json

import pytest

from bertkit.config.sections import OptimConfig, TrainConfig
from bertkit.run.advice import ENOUGH_STEPS, Adviser
from bertkit.run.folder import read_metrics
from bertkit.run.log import RunLog, cut_metrics
from bertkit.run.schedule import StepRules
from bertkit.run.state import LoopState
from bertkit.run.step import StepResult


def adviser(total_steps: int = 1000, free: float = 0.5) -> Adviser:
    return Adviser(total_steps=total_steps, unigram=7.0, num_workers=1, free_memory=lambda: free)


def make_log(folder, state: LoopState, *, log_every: int, total_steps: int, **options) -> RunLog:
    given = {"share_of_peak": lambda tokens, targets, seconds: 0.0, "track": lambda values, step: None, **options}
    rules = StepRules(total_steps=total_steps, seed=0, optim=OptimConfig(), train=TrainConfig(steps=total_steps))
    return RunLog(folder, state, rules=rules, log_every=log_every, **given)


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
    path.write_text('{"step": 5}\n{"step": 10}\n{"step": 12}\n[5]\n{"step": 1')
    assert [record["step"] for _, record in read_metrics(tmp_path)] == [5, 10, 12]
    cut_metrics(tmp_path, 10)
    assert path.read_text() == '{"step": 5}\n{"step": 10}\n'
    cut_metrics(tmp_path / "absent", 10)


@pytest.mark.parametrize("share", [0.5, None])
def test_an_unknown_share_of_peak_is_left_out(share, tmp_path, capsys):
    state, known = LoopState(), int(share is not None)
    options = {"adviser": adviser(), "share_of_peak": lambda tokens, targets, seconds: share}
    with make_log(tmp_path, state, total_steps=1, log_every=1, **options) as log:
        state.step = 1
        log.step(result(5.0, 1), 0.5, 1.0, 0.0)
    ((_, record),) = read_metrics(tmp_path)
    assert record.get("share_of_peak") == share
    assert capsys.readouterr().err.count("of peak") == known
