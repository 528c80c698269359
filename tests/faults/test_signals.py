"""A run that is asked to stop saves at the next step border and leaves nothing behind."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from runs import EVERY, final_state, newest, reached, wait_until

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
def test_a_signal_stops_a_run_at_the_next_border(home, expected, tmp_path, tried, number, asked):
    """Row 4: every rank ends with the code of its signal, and nothing they started lives on."""
    ranks, targets = ASKED[asked]
    folder = tmp_path / "run"
    run = home.start(folder, "run.num_workers=1", ranks=ranks)
    wait_until(lambda: reached(folder) > EVERY, run)
    asked_at = reached(folder)
    run.signal(number, *targets)
    codes = run.wait(SECONDS)
    # A rank that was not asked itself ends as if terminated.
    assert codes == [128 + (number if rank in targets else signal.SIGTERM) for rank in range(ranks)], run.said()
    assert asked_at <= newest(folder) == reached(folder), "the last step that was done is saved"
    assert not run.orphans()
    home.finish(folder)
    assert final_state(folder) == expected
    tried()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.faults)])
def test_a_second_signal_ends_the_process_at_once(home, tmp_path, tried, number):
    """Row 4: even in the middle of a step that takes long."""
    run = home.start(tmp_path / "run", "run.num_workers=1", before=take_long)
    wait_until(lambda: reached(tmp_path / "run") == EVERY, run)
    time.sleep(0.5)
    run.signal(number)
    time.sleep(1.5)  # within a second it would be the same wish, passed on by a launcher
    assert run.alive()
    run.signal(number)
    assert run.wait(SECONDS) == [128 + number]
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
    """The first rank does not come to the meeting; the second says when it goes there."""
    from bertkit.training import pretrain

    real = pretrain.start_accelerator

    def start_accelerator(*arguments):
        if os.environ["RANK"] == "0":
            time.sleep(60)
        waits.touch()
        return real(*arguments)

    pretrain.start_accelerator = start_accelerator


def take_long() -> None:
    """Spend a minute in one step."""
    from bertkit.training import pretrain

    real = pretrain.train_step

    def train_step(*arguments, **options):
        deadline = time.monotonic() + 60 * (options["step"] == EVERY)
        while time.monotonic() < deadline:
            time.sleep(0.1)
        return real(*arguments, **options)

    pretrain.train_step = train_step
