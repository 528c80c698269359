"""Output is never a reason to stop: whoever reads it may go away, and what is written down is strict JSON."""

import contextlib
import json
import os
from functools import partial

import pytest
from runs import EVERY, final_state, poison_steps, start

LOST = ("pipe", "reader that stands still", "stderr closed", "both closed", "full disk")


def lose_output(how: str) -> None:
    """What `| head` leaves behind, `| less` that nobody pages on, `2>&-`, `>&- 2>&-`, `2>/dev/full`."""
    read, write = os.pipe()
    if how == "reader that stands still":
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(write, bytes(4096))
        os.set_blocking(write, True)
    else:
        os.close(read)
    if how in ("pipe", "reader that stands still"):
        os.dup2(write, 1)
        os.dup2(write, 2)
    elif how == "full disk":
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, 1)
        os.dup2(full, 2)
    else:
        os.close(2)
        if how == "both closed":
            os.close(1)


@pytest.mark.parametrize(
    ("how", "ranks"),
    [
        ("pipe", 1),
        ("reader that stands still", 1),
        ("full disk", 1),
        ("both closed", 1),
        *[pytest.param(how, 2, marks=pytest.mark.faults) for how in LOST],
        pytest.param("stderr closed", 1, marks=pytest.mark.faults),
    ],
)
def test_a_run_whose_output_is_lost_goes_on_to_its_end(home, expected, tmp_path, tried, how, ranks):
    """Row 26: silently, and to the same bits."""
    run = home.start(tmp_path / "run", "run.num_workers=1", ranks=ranks, before=partial(lose_output, how))
    assert run.wait() == [0] * ranks
    assert (tmp_path / "run" / "export").is_dir()
    assert final_state(tmp_path / "run") == expected
    tried()


@pytest.mark.parametrize(("how", "code"), [("pipe", 0), ("both closed", 0), ("full disk", 1)])
def test_a_verb_that_prints_may_end_early(undisturbed, tmp_path, tried, how, code):
    """Row 26: a reader who has seen enough is no error, an answer that was lost is one."""
    run = start(["info", str(undisturbed)], log=tmp_path / "log", before=partial(lose_output, how))
    assert run.wait() == [code]
    tried()


def test_a_broken_pipe_that_is_not_the_output_ends_a_run_as_a_failure(home, tmp_path, tried):
    """Row 26: such as that of a tracker."""
    run = home.start(tmp_path / "run", f"train.steps={EVERY}", before=break_export)
    assert run.wait() == [1], run.said()
    tried()


def break_export() -> None:
    from bertkit.pretrain import train

    def export(*arguments):
        raise BrokenPipeError(32, "Broken pipe")

    train.export = export


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_what_is_not_finite_is_written_as_null_and_told_as_skipped(home, tmp_path, tried, poison):
    """Row 31: every line of metrics.jsonl is strict JSON."""
    folder = tmp_path / "run"
    run = home.start(folder, f"train.steps={EVERY}", before=partial(poison_steps, poison, (2,)))
    assert run.wait() == [0], run.said()

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    lines = [json.loads(line, parse_constant=refuse) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}
    assert [step for step, loss in losses.items() if loss is None] == [3]
    told = [line for line in run.said().splitlines() if line.startswith("step 3/")]
    assert len(told) == 1
    assert "skipped 1" in told[0]
    assert "loss" not in told[0]
    tried()
