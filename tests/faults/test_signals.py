"""A run that is asked to stop saves at the next step border and leaves nothing behind."""

import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from runs import EVERY, STEPS, dawdle, final_state, newest, reached, wait_until

SECONDS = 10
ASKED = {"one rank": (1, [0]), "both ranks": (2, [0, 1]), "the second of two": (2, [1])}


@pytest.mark.parametrize(
    ("number", "asked"),
    [
        (signal.SIGINT, "one rank"),
        (signal.SIGTERM, "the second of two"),
        pytest.param(signal.SIGTERM, "one rank", marks=pytest.mark.faults),
        pytest.param(signal.SIGTERM, "both ranks", marks=pytest.mark.faults),
        pytest.param(signal.SIGINT, "both ranks", marks=pytest.mark.faults),
        pytest.param(signal.SIGINT, "the second of two", marks=pytest.mark.faults),
    ],
)
def test_a_signal_stops_a_run_at_the_next_border(home, expected, tmp_path, tried, within, number, asked):
    """Row 4: every rank ends with the code of its signal, and nothing they started lives on."""
    ranks, targets = ASKED[asked]
    folder = tmp_path / "run"
    run = home.start(folder, "run.num_workers=1", ranks=ranks, before=dawdle)
    wait_until(lambda: reached(folder) > EVERY, run)
    asked_at = reached(folder)
    run.signal(number, *targets)
    # One step may be done and not yet written down, one rank may be a step ahead, and one step hears of the signal.
    latest = reached(folder) + ranks + 1
    codes = run.wait(within(SECONDS))
    # A rank that was not asked itself ends as if terminated.
    assert codes == [128 + (number if rank in targets else signal.SIGTERM) for rank in range(ranks)], run.said()
    assert newest(folder) == reached(folder), "the last step that was done is saved"
    assert asked_at <= newest(folder) <= latest
    assert not run.orphans()
    home.finish(folder)
    assert final_state(folder) == expected
    tried()


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_step_in_which_a_signal_comes_is_the_last(home, tmp_path, tried, ranks):
    """Row 4: the next border is its end; with two ranks only one of them is asked."""
    folder = tmp_path / "run"
    run = home.start(folder, ranks=ranks, before=partial(ask_within_step, EVERY + 1))
    assert run.wait() == [128 + signal.SIGTERM] * ranks, run.said()
    assert newest(folder) == EVERY + 2, "the number of steps that are done"
    tried()


def ask_within_step(step: int) -> None:
    """Let the last rank be asked to stop while it computes a step."""
    from bertkit.model import MaskedLM
    from bertkit.run import loop

    real_step, real_loss = loop.train_step, MaskedLM.loss
    last_rank = int(os.environ.get("RANK", "0")) + 1 == int(os.environ.get("WORLD_SIZE", "1"))
    now = -1

    def train_step(*arguments, **options):
        nonlocal now
        now = options["step"]
        return real_step(*arguments, **options)

    def loss(self, batch):
        if now == step and last_rank:
            os.kill(os.getpid(), signal.SIGTERM)
        return real_loss(self, batch)

    loop.train_step, MaskedLM.loss = train_step, loss


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("step", [EVERY, STEPS])
def test_a_signal_during_a_long_evaluation_ends_it(home, expected, tmp_path, tried, within, ranks, step):
    """Row 4: minimal pairs may take many minutes. With two ranks only one of them is asked."""
    folder, pairs, begun = tmp_path / "run", tmp_path / "pairs.tsv", tmp_path / "begun"
    pairs.write_text("".join(f"{'good ' * (1 + n % 9)}\t{'bad ' * (1 + n % 7)}\n" for n in range(100)))
    judging = [f"eval.pairs={pairs}", f"eval.every={step}"]
    run = home.start(folder, *judging, ranks=ranks, before=partial(judge_slowly, begun))
    wait_until(begun.exists, run)
    run.signal(signal.SIGTERM, ranks - 1)
    assert run.wait(within(SECONDS)) == [128 + signal.SIGTERM] * ranks, run.said()
    assert newest(folder) == step
    assert not any(json.loads(line)["kind"] == "pairs" for line in (folder / "metrics.jsonl").open())
    home.finish(folder, *judging)
    assert final_state(folder) == expected
    judged = [line for line in map(json.loads, (folder / "metrics.jsonl").open()) if line["kind"] == "pairs"]
    assert judged[-1]["step"] == STEPS
    tried()


def judge_slowly(begun: Path) -> None:
    """Judge minimal pairs a few tokens at a time, each of which takes long."""
    from bertkit.evaluate import pseudo_likelihood

    real = pseudo_likelihood._questions

    def questions(*arguments):
        begun.touch()
        time.sleep(0.5)
        return real(*arguments)

    pseudo_likelihood.BATCH_TOKENS, pseudo_likelihood._questions = 4, questions


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.faults)])
def test_a_second_signal_ends_the_process_at_once(home, tmp_path, tried, within, number):
    """Row 4: even in the middle of a step that takes long."""
    begun = tmp_path / "begun"
    run = home.start(tmp_path / "run", "run.num_workers=1", before=partial(take_long, begun))
    wait_until(begun.exists, run)
    run.signal(number)
    time.sleep(4)  # within three seconds it would be the same wish, passed on by a launcher
    assert run.alive()
    run.signal(number)
    assert run.wait(within(SECONDS)) == [128 + number]
    assert not run.orphans()
    tried()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.faults)])
def test_a_rank_that_waits_for_another_ends_at_once(home, tmp_path, tried, number):
    """Row 4: there is nothing to save yet, and torch does not listen while the ranks find each other."""
    run = home.start(tmp_path / "run", ranks=2, before=partial(keep_waiting, tmp_path / "waits"))
    wait_until((tmp_path / "waits").exists, run)
    time.sleep(0.5)
    run.signal(number, 1)
    run.ranks[1].join(SECONDS)
    assert run.ranks[1].exitcode == -number, run.said()
    run.kill(0)
    tried()


def keep_waiting(waits: Path) -> None:
    """The first rank never connects; the second says when it tries to."""
    from bertkit.run import start

    real = start.start_accelerator

    def start_accelerator(*arguments):
        if os.environ["RANK"] == "0":
            time.sleep(60)
        waits.touch()
        return real(*arguments)

    start.start_accelerator = start_accelerator


def take_long(begun: Path) -> None:
    """Never come to the end of a step."""
    from bertkit.run import loop

    real = loop.train_step

    def train_step(*arguments, **options):
        while options["step"] == EVERY:
            begun.touch()
            time.sleep(0.1)
        return real(*arguments, **options)

    loop.train_step = train_step
