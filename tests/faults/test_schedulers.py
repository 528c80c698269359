"""Signals as schedulers, launchers and people send them: to every process of a run, and at any time."""

import os
import signal
import sys
import time
from functools import partial
from itertools import product

import pytest
from grammar import write_conll
from machine import MARK, marked
from runs import EVERY, dawdle, final_state, launch, newest, reached, start, wait_until

SECONDS = 10
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def cases_of(everyday: set[tuple[int, int, int]]) -> pytest.MarkDecorator:
    """Every signal with 0, 1 and 2 loader workers, one rank and two; every day a few of them."""
    cases = product(SIGNALS, (0, 1, 2), (1, 2))
    params = [pytest.param(*case, marks=() if case in everyday else pytest.mark.faults) for case in cases]
    return pytest.mark.parametrize(("number", "workers", "ranks"), params)


@cases_of({(signal.SIGTERM, 2, 2), (signal.SIGHUP, 1, 1)})
def test_a_signal_to_every_process_stops_a_run_at_the_next_border(
    home, expected, tmp_path, tried, within, number, workers, ranks
):
    """Row 24: loader workers leave stopping to their parent, which needs their batches until then."""
    folder = tmp_path / "run"
    run = home.start(folder, f"run.num_workers={workers}", ranks=ranks, before=dawdle)
    wait_until(lambda: reached(folder) > EVERY, run)
    assert len(run.workers()) == workers * ranks
    run.signal_groups(number)
    assert run.wait(within(SECONDS)) == [128 + number] * ranks, run.said()
    assert newest(folder) == reached(folder), "the last step that was done is saved"
    assert not run.orphans()
    assert "Traceback" not in run.said()
    home.finish(folder)
    assert final_state(folder) == expected
    tried()


@cases_of({(signal.SIGTERM, 1, 2)})
def test_a_signal_to_the_launcher_stops_a_run_at_the_next_border(
    home, expected, tmp_path, tried, within, number, workers, ranks
):
    """Row 24: which passes it on to the ranks; nothing of the run lives on."""
    folder, mark = tmp_path / "run", f"{tmp_path}"
    argv = [*home.argv(folder, f"run.num_workers={workers}"), "--plugin", "dawdling"]
    run = launch(argv, ranks=ranks, log=tmp_path / "log", environment={MARK: mark})
    wait_until(lambda: reached(folder) > EVERY, run)
    run.signal(number)
    assert run.wait(within(2 * SECONDS)) != [None], run.said()  # of which the launcher itself needs some
    assert newest(folder) == reached(folder), run.said()
    assert f"stopped after step {newest(folder)}" in run.said()
    deadline = time.monotonic() + 20
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not marked(mark)
    home.finish(folder)
    assert final_state(folder) == expected
    tried()


@pytest.mark.parametrize(
    ("workers", "ranks"),
    [(1, 1), pytest.param(2, 1, marks=pytest.mark.faults), pytest.param(1, 2, marks=pytest.mark.faults)],
)
def test_a_killed_loader_worker_ends_the_run_in_one_line(home, expected, tmp_path, tried, workers, ranks):
    """Row 25: as lack of memory does it. The same command resumes to the same bits."""
    folder = tmp_path / "run"
    run = home.start(folder, f"run.num_workers={workers}", ranks=ranks, before=dawdle)
    wait_until(lambda: reached(folder) > EVERY, run)
    os.kill(run.workers()[0], signal.SIGKILL)
    assert set(run.wait()) == {1}, run.said()
    assert sum("loader worker" in line for line in run.said().splitlines()) == 1, run.said()
    assert not run.orphans()
    assert "Traceback" not in run.said()
    home.finish(folder)
    assert final_state(folder) == expected
    tried()


def test_no_loader_worker_outlives_a_killed_run(home, tmp_path, tried):
    """Row 24: a worker that waits for its parent to take a batch ends with it."""
    folder = tmp_path / "run"
    run = home.start(folder, "run.num_workers=2", before=dawdle)
    wait_until(lambda: reached(folder) > 0, run)
    run.kill()
    assert not run.orphans()
    tried()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("decide_steps", signal.SIGINT),
        *[pytest.param("decide_steps", number, marks=pytest.mark.faults) for number in SIGNALS[::2]],
        *[pytest.param("warm_start", number, marks=pytest.mark.faults) for number in SIGNALS],
    ],
)
def test_a_signal_before_the_first_step_ends_a_run(home, tmp_path, tried, within, name, number):
    """Row 32: while steps are timed, or embeddings are given their start, there is nothing to save."""
    run = home.start(tmp_path / "run", before=partial(signal_within, "bertkit.pretrain.train", name, number))
    assert run.wait(within(60)) == [130 if number == signal.SIGINT else -number], run.said()
    assert newest(tmp_path / "run") == 0
    assert "Traceback" not in run.said()
    tried()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_after_the_last_step_ends_a_run(home, tmp_path, tried, within, number):
    """Row 32: whatever comes after it is done again when the run resumes."""
    folder = tmp_path / "run"
    hook = partial(signal_within, "bertkit.pretrain.train", "export", number)
    run = home.start(folder, f"train.steps={EVERY}", before=hook)
    assert run.wait(within(60)) == [130 if number == signal.SIGINT else -number], run.said()
    assert newest(folder) == EVERY
    assert "Traceback" not in run.said()
    home.finish(folder, f"train.steps={EVERY}")
    assert (folder / "export").is_dir()
    tried()


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("bertkit.finetune.train", "finish_seed"),
        pytest.param("bertkit.finetune.results", "save", marks=pytest.mark.faults),
        pytest.param("bertkit.finetune.train", "print_results", marks=pytest.mark.faults),
    ],
)
def test_a_signal_between_seeds_ends_a_run(tmp_path, tried, within, where, name):
    """Row 32: and after the last of them."""
    write_conll(tmp_path / "train.conll", 20)
    argv = ["finetune", "ner", f"data.train={tmp_path / 'train.conll'}", "train.epochs=1", "run.seeds=[0,1]"]
    argv += ["model.like=bert-mini", f"run.dir={tmp_path / 'run'}"]
    hook = partial(signal_within, where, name, signal.SIGINT)
    run = start(argv, log=tmp_path / "log", before=hook)
    assert run.wait(within(60)) == [130], run.said()
    assert "Traceback" not in run.said()
    tried()


def signal_within(module: str, name: str, number: int) -> None:
    """Let this function signal its own process, and then take very long."""

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), number)
        time.sleep(1000)

    setattr(sys.modules[module], name, interrupted)


@pytest.mark.parametrize(
    "stage", ["_collect", "_prepare_and_inspect", "_pretrain", "_finetune", "_compare", "_tag", "_report"]
)
def test_ctrl_c_ends_the_demo_in_every_stage(monkeypatch, tmp_path, tried, capsys, stage):
    """Row 32: and the command that goes on is told."""
    from bertkit.cli import main
    from bertkit.demo import stages

    for name in ("_collect", "_prepare_and_inspect", "_pretrain", "_finetune", "_compare", "_tag", "_report"):
        monkeypatch.setattr(stages, name, lambda *arguments: 0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal_within("bertkit.demo.stages", stage, signal.SIGINT)
        assert main(["demo", "--dir", str(tmp_path / "demo")]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert f"bertkit demo --dir {tmp_path / 'demo'}" in capsys.readouterr().err
    tried()
