"""`--json-log`: a program reads what happens to a run, an object a line, whatever happens to it."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from grammar import write_conll
from runs import EVERY, STEPS, dawdle, final_state, newest, poison_steps, reached, start, wait_until

from bertkit.cli import main


def apart(path: str, then: Callable[[], None] | None = None) -> None:
    """Let standard output go to a file of its own."""
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    if then is not None:
        then()


def events_in(path: Path) -> list[dict]:
    """What the file holds, which is strict JSON and nothing else."""

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text(encoding="utf-8").splitlines()]


def disturb() -> None:
    """Slow steps, of which one is not finite; libraries write to standard output, past Python too."""
    poison_steps("loss", (2,))
    dawdle()
    os.write(1, b"a library says hello\n")
    print("and another one")


def test_a_supervisor_reads_of_every_event(home, tmp_path):
    folder, output = tmp_path / "run", tmp_path / "events"
    argv = [*home.argv(folder, "eval.every=7"), "--json-log"]
    run = start(argv, log=tmp_path / "log", before=partial(apart, str(output), patch_start(disturb)))
    wait_until(lambda: reached(folder) > EVERY + 2, run)
    run.signal(signal.SIGTERM)
    assert run.wait() == [143], run.said()
    events = events_in(output)
    assert [events[0]["event"], events[-1]["event"]] == ["start", "stopped"]
    assert events[0].items() >= {"run_dir": str(folder), "step": 0, "total_steps": STEPS, "rank": 0}.items()
    assert events[-1].items() >= {"step": newest(folder), "exit_code": 143}.items()
    by_name = {event["event"]: event for event in reversed(events)}
    assert by_name["skipped"].items() >= {"step": 3, "in_a_row": 1}.items()
    assert [event["loss"] for event in events if event["event"] == "step" and event["step"] == 3] == [None]
    assert by_name["eval"].items() >= {"step": 7, "kind": "eval"}.items()
    assert Path(by_name["checkpoint"]["path"]).name == f"step-{EVERY:08d}"
    assert "a library says hello\n" in run.said()
    assert "and another one\n" in run.said()
    assert "step 1/" in run.said()

    damaged = newest(folder)
    (folder / "checkpoints" / f"step-{damaged:08d}" / "state.json").write_text("{}")
    output.unlink()
    run = start(argv, log=tmp_path / "log", before=partial(apart, str(output)))
    assert run.wait() == [0], run.said()
    events = events_in(output)
    assert [event["event"] for event in events[:2]] == ["warning", "resume"]
    assert "state.json" in events[0]["text"]
    assert "state.json" in run.said()
    assert EVERY <= events[1]["step"] < damaged
    assert events[-1].items() >= {"event": "finished", "step": STEPS, "exit_code": 0}.items()
    assert Path(events[-1]["export"]).is_dir()


def patch_start(then: Callable[[], None]) -> Callable[[], None]:
    """Call it once the run has begun, when `--json-log` is in force."""
    return partial(_patch_start, then)


def _patch_start(then: Callable[[], None]) -> None:
    from bertkit.pretrain import train

    real = train.check_pretraining

    def check(recipe):
        then()
        real(recipe)

    train.check_pretraining = check


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["data.corpu=x"], 2, "data.corpus"),
        (["--jsn-log"], 2, "--json-log"),
        (["data.corpus=missing.txt"], 2, "missing"),
    ],
)
def test_a_supervisor_reads_why_a_start_failed(capfd, words, code, told):
    assert main(["pretrain", "bert-mini", "run.dir=run", *words, "--json-log"]) == code
    output, text = capfd.readouterr()
    (event,) = map(json.loads, output.splitlines())
    assert event.items() >= {"event": "failed", "exit_code": code}.items()
    assert told in event["message"]
    assert told in text


def test_every_rank_says_why_it_failed(home, tmp_path):
    argv, output = [*home.argv(tmp_path / "run"), "--json-log"], tmp_path / "events"
    run = start(argv, ranks=2, last=("run.seed=1",), log=tmp_path / "log", before=partial(apart, str(output)))
    assert run.wait() == [2, 2], run.said()
    events = events_in(output)
    assert sorted((event["event"], event["rank"]) for event in events) == [("failed", 0), ("failed", 1)]
    assert all("run.seed is " in event["message"] for event in events)


def test_a_supervisor_that_goes_away_does_not_stop_a_run(home, expected, tmp_path, tried):
    """Row 26: nor does one whose disk is full."""
    full = partial(apart, "/dev/full")
    run = start([*home.argv(tmp_path / "run"), "--json-log"], log=tmp_path / "log", before=full)
    assert run.wait() == [0], run.said()
    assert final_state(tmp_path / "run") == expected
    tried()


def test_fine_tuning_tells_of_its_seeds_and_scores(tmp_path):
    write_conll(tmp_path / "train.conll", 20)
    argv = ["finetune", "ner", f"data.train={tmp_path / 'train.conll'}", f"data.dev={tmp_path / 'train.conll'}"]
    argv += ["train.epochs=1", "run.seeds=[0,1]", "model.like=bert-mini", f"run.dir={tmp_path / 'run'}", "--json-log"]
    output = tmp_path / "events"
    run = start(argv, log=tmp_path / "log", before=partial(apart, str(output)))
    assert run.wait() == [0], run.said()
    events = events_in(output)
    assert [event["seed"] for event in events if event["event"] == "start"] == [0, 1]
    assert {event["kind"] for event in events if event["event"] == "eval"} == {"dev", "best_dev"}
    assert events[-1].items() >= {"event": "finished", "score": "f1", "exit_code": 0}.items()
    assert {"warning", "step", "checkpoint"} <= {event["event"] for event in events}
    assert "the model is in" in run.said()
