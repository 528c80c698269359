"""A killed run resumes to the same bits and loses no more than one checkpoint interval."""

import json
import os
import random
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from counts import counts
from dying import MOMENTS, die_in_save, record_changes
from runs import EVERY, STEPS, dawdle, final_state, newest, reached, wait_until

from bertkit.run.checkpoint import checkpoints, load_checkpoint
from bertkit.run.heartbeat import SILENT_BEATS
from data_pipelines.masks.plan import Plan
from data_pipelines.rows.shards import open_rows


@counts(everyday=3, full=50)
@pytest.mark.timeout(1800)
def test_kills_at_random_moments_change_nothing(home, expected, tmp_path, tried, count):
    """Row 1: also while the process starts, saves or exports; the moment is drawn from the time a whole run takes."""
    rng = random.Random(count)
    begin = time.monotonic()
    home.finish(tmp_path / "timed")
    whole = time.monotonic() - begin
    killed = runs = 0
    while killed < count:
        folder = tmp_path / f"run-{runs}"
        runs += 1
        while killed < count and not (folder / "export").exists():
            before = newest(folder)
            run = home.start(folder)
            time.sleep(rng.uniform(0, whole / 2))
            run.kill()
            assert run.wait() in ([-signal.SIGKILL], [0])
            killed += run.wait() == [-signal.SIGKILL]
            assert before <= newest(folder)
            assert reached(folder) - newest(folder) <= EVERY
        home.finish(folder)
        assert final_state(folder) == expected
        assert not leftovers(folder)
    tried(killed)


def leftovers(folder: Path) -> list[str]:
    """What only a run that is still going on may have in its folder."""
    return [str(path) for path in folder.rglob("*") if path.name.startswith((".tmp", ".old"))]


@counts(everyday=3, full=1000)
@pytest.mark.timeout(3600)
def test_death_around_any_change_that_a_save_makes_leaves_a_checkpoint(home, expected, killed, tmp_path, tried, count):
    """Row 2: before, in the middle of and after each of them, as the operating system is asked for it."""
    saved, changes = 3 * EVERY, tmp_path / "changes"
    shutil.copytree(killed, tmp_path / "recorded")
    run = home.start(tmp_path / "recorded", before=partial(record_changes, saved, changes))
    assert run.wait() == [0], run.said()
    names = changes.read_text().split()
    assert {"mkdir", "open", "write", "fsync", "rename", "unlink", "rmdir"} <= set(names)
    deaths = [
        (index, moment)
        for index, name in enumerate(names)
        for moment in MOMENTS
        if moment != "middle" or name == "write"
    ]
    if count < len(deaths):
        deaths = random.Random(0).sample(deaths, count)
    for index, moment in deaths:
        folder = tmp_path / f"{index}-{moment}"
        shutil.copytree(killed, folder)
        run = home.start(folder, before=partial(die_in_save, saved, index, moment))
        assert run.wait() == [-signal.SIGKILL], (names[index], moment, run.said())
        assert newest(folder) in (2 * EVERY, saved)
        whole = [load_checkpoint(path).step for _, path in checkpoints(folder / "checkpoints")]
        assert len(whole) >= 2, "what has its final name is whole"
        home.finish(folder)
        assert final_state(folder) == expected, (names[index], moment)
        assert not leftovers(folder)
        shutil.rmtree(folder)
        tried()


@pytest.mark.parametrize("where", ["three times in one epoch", "at an epoch's border", "at the last step"])
def test_kills_at_awkward_steps_change_nothing(home, undisturbed, expected, tmp_path, tried, where):
    """Row 3: the result, and which rows each step saw."""
    fingerprint = json.loads((undisturbed / "run.json").read_bytes())["rows"]
    prepared = [open_rows(path, "train") for path in (home.cache / "rows").iterdir() if path.is_dir()]
    (rows,) = [rows for rows in prepared if rows.fingerprint == fingerprint]
    border = len(rows) // 8
    assert 15 < border < STEPS - 1, "the run should pass the end of an epoch, and not too soon"
    steps = {
        "three times in one epoch": [border - 12, border - 7, border - 2],
        "at an epoch's border": [border, border + 1],
        "at the last step": [STEPS - 1],
    }[where]
    folder = tmp_path / "run"
    seen: dict[int, str] = {}
    for step in [*steps, None]:
        log = tmp_path / f"rows-{step}"
        begun = newest(folder)
        run = home.start(folder, before=partial(note_rows, log, step))
        assert run.wait() == [0 if step is None else -signal.SIGKILL], run.said()
        # What came after the checkpoint that the next process resumes from was lost, and is done again.
        seen = {at: row_ids for at, row_ids in seen.items() if at < begun}
        for line in log.read_text().splitlines():
            at, row_ids = line.split(" ", 1)
            assert int(at) not in seen, "a step that a checkpoint holds is not done again"
            seen[int(at)] = row_ids
    assert final_state(folder) == expected
    plan = Plan(len(rows), 8, seed=0)
    assert seen == {step: str(plan.rows_of_step(step)[0].tolist()) for step in range(STEPS)}
    tried(len(steps))


def note_rows(log: Path, last_step: int | None) -> None:
    """Write down the rows of every step that is trained, and be killed before the last one."""
    from bertkit.run import loop

    real_step, real_rows = loop.train_step, Plan.rows_of_step
    rows: dict[int, str] = {}

    def rows_of_step(self, step):
        found = real_rows(self, step)
        rows[step] = str(found[0].tolist())
        return found

    def train_step(*arguments, **options):
        if options["step"] == last_step:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real_step(*arguments, **options)
        with open(log, "a") as file:
            file.write(f"{options['step']} {rows[options['step']]}\n")
        return result

    Plan.rows_of_step, loop.train_step = rows_of_step, train_step


@counts(everyday=1, full=6)
@pytest.mark.timeout(1800)
def test_a_rank_whose_peer_is_killed_ends_soon_and_the_run_goes_on(home, expected, tmp_path, tried, within, count):
    """Row 5: either rank, while they train; without a launcher that would end the other."""
    rng = random.Random(count)
    for case in range(count):
        folder, victim = tmp_path / f"run-{case}", (case + 1) % 2
        run = home.start(folder, ranks=2, before=dawdle)
        step = rng.randrange(3, STEPS - 10)
        wait_until(lambda folder=folder, step=step: reached(folder) >= step, run)
        run.kill(victim)
        codes = run.wait(within(60))
        assert codes[victim] == -signal.SIGKILL
        assert codes[1 - victim] not in (None, 0), run.said()
        home.finish(folder)
        assert final_state(folder) == expected
        tried()


@pytest.mark.parametrize("victim", [0, 1])
@counts(everyday=5, full=SILENT_BEATS)
def test_a_rank_that_waits_for_one_that_never_comes_ends_soon(home, tmp_path, tried, within, victim, count):
    """Row 5: killed before the ranks are connected; the everyday count has less patience."""
    folder = tmp_path / "run"
    run = home.start(folder, ranks=2, before=partial(die_before_connecting, victim, count, tmp_path / "gone"))
    codes = run.wait(within(60))
    assert codes[victim] == -signal.SIGKILL
    assert codes[1 - victim] not in (None, 0), run.said()
    tried()


def die_before_connecting(victim: int, beats: int, gone: Path) -> None:
    """Be killed where the ranks would connect; only then does the other one lose patience, however slow the machine."""
    from bertkit.run import heartbeat, start

    real = start.start_accelerator

    def start_accelerator(*arguments):
        if os.environ["RANK"] == str(victim):
            gone.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        while not gone.exists():
            time.sleep(0.01)
        heartbeat.SILENT_BEATS = beats
        return real(*arguments)

    start.start_accelerator = start_accelerator
