"""Minutes become steps on a machine under load; the load is a clock of the test's own."""

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from runs import final_state

from bertkit.config.recipe import read_recipe
from bertkit.pretrain import budget
from bertkit.pretrain.budget import make_plan
from bertkit.pretrain.train import pretrain
from bertkit.run import loop

torch.set_num_threads(1)

MINUTES = ("train.minutes=0.1", "run.save_every=4", "run.log_every=1000", "model.embeddings=random")
SECONDS = 6.0
SLOW, FAST = 0.5, 0.05
TIMED = 5
"""Steps that are timed at the start."""


class Killed(BaseException):
    """Ends a run as a kill would: no handler of the product catches it."""


@pytest.fixture
def train(home, monkeypatch) -> Callable[..., dict]:
    """Trains for some minutes, each step as long as `seconds` says of its number in this process; tells what run.json
    says at the end."""

    def train(folder, seconds: Callable[[int], float], *changes: str, kill_at: int | None = None) -> dict:
        clock, taken = SimpleNamespace(now=0.0), 0
        real = loop.train_step

        def train_step(*arguments, **options):
            nonlocal taken
            if options["step"] == kill_at and taken >= TIMED:
                raise Killed
            clock.now += seconds(taken)
            taken += 1
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "train_step", train_step)
            patch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: clock.now))
            _, name, *given = home.argv(folder, "train.steps=1", *MINUTES, *changes)
            recipe = read_recipe(name, [change for change in given if not change.startswith("train.steps")])
            if kill_at is None:
                assert pretrain(recipe) == 0
            else:
                with pytest.raises(Killed):
                    pretrain(recipe)
        return json.loads((folder / "run.json").read_bytes())

    return train


def test_a_load_while_steps_are_timed_is_corrected(train, tmp_path, tried, capsys):
    """Row 40: a tenth of the steps was expected; once the load is gone the rest of the time is used."""
    facts = train(tmp_path / "run", lambda taken: SLOW if taken < TIMED else FAST, "run.log_every=1")
    (_, planned), (border, total) = facts["lengths"]
    assert planned == SECONDS / SLOW
    assert total == pytest.approx(SECONDS / FAST, abs=1)
    assert facts["total_steps"] == total
    assert f"{total} steps fit train.minutes=0.1, where {planned}" in capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = {line["step"]: line["lr"] for line in lines if line["kind"] == "train"}
    assert list(rates) == list(range(1, total + 1)), "every step is taken once"
    assert min(rates[step] for step in range(border + 1, total // 2)) > rates[total], "the rate falls at the new end"
    tried()


@pytest.mark.parametrize("slow", [0, TIMED - 2, TIMED - 1])
def test_a_busy_moment_while_steps_are_timed_changes_nothing(train, tmp_path, tried, slow):
    """Row 40: one slow step of those that are timed, and the first ones, do not count."""
    facts = train(tmp_path / "run", lambda taken: 20 * SLOW if taken == slow else SLOW)
    assert facts["lengths"][0] == [0, SECONDS / SLOW]
    tried()


def test_a_load_that_comes_later_ends_the_run_in_time(train, tmp_path, tried, capsys):
    """Row 40: and it says that so few steps are little."""
    facts = train(tmp_path / "run", lambda taken: FAST if taken < TIMED else SLOW)
    (_, planned), (border, total) = facts["lengths"]
    assert planned == pytest.approx(SECONDS / FAST, abs=1)
    assert total == border + 1
    assert "train.global_batch" in capsys.readouterr().err
    tried()


@pytest.mark.parametrize("loaded", [False, True])
def test_an_opening_of_slow_steps_is_taken_once_and_timed_by_itself(train, tmp_path, tried, monkeypatch, loaded):
    """Row 40: causal steps at the start take longer than those that follow. Where a load made all steps slow while they
    were timed, many more fit later, and none of these is causal."""
    real, causal = loop.train_step, {}

    def train_step(model, optimizers, batches, *rest, **options):
        causal[options["step"]] = bool((batches[0].prefixes == 0).any())
        return real(model, optimizers, batches, *rest, **options)

    monkeypatch.setattr(loop, "train_step", train_step)
    monkeypatch.setattr(budget, "_MEASURED_SHARE", 0.0)  # fast steps are timed no more often than slow ones
    timed = 2 * TIMED
    slow_ones = range(timed) if loaded else range(TIMED)
    share = 0.25
    planned = round(SECONDS / (SLOW if loaded else share * SLOW + (1 - share) * FAST))
    opening = round(share * planned)

    def seconds(taken: int) -> float:
        return SLOW if taken in slow_ones or timed <= taken < timed + opening else FAST

    changes = ("train.objective=causal-first", f"train.causal_share={share}")
    facts = train(tmp_path / "run", seconds, *changes)
    assert facts["lengths"][0] == [0, pytest.approx(planned, abs=1)]
    border, total = facts["lengths"][1]
    assert opening < border < planned
    assert total == pytest.approx(opening + (SECONDS - opening * SLOW) / FAST, abs=1)
    assert [step for step in range(total) if causal[step]] == list(range(opening))
    tried()


@pytest.mark.parametrize("kill_at", [3, 7, 30])
def test_every_resume_keeps_the_number_of_steps(train, tmp_path, tried, kill_at):
    """Row 40: killed before the number was corrected, after it but before a checkpoint, and later. Whatever the clock
    says then, the run ends in the bits of one that nothing disturbed."""
    changes = ("train.first_batch=2", "train.batch_warmup=0.5", "mask.final_rate=0.1")
    expected = train(tmp_path / "whole", lambda taken: SLOW if taken < TIMED else FAST, *changes)
    (_, planned), (border, total) = expected["lengths"]
    before = train(tmp_path / "run", lambda taken: SLOW if taken < TIMED else FAST, *changes, kill_at=kill_at)
    assert before.get("lengths", [[0, before["total_steps"]]]) == expected["lengths"][: 1 + (kill_at > border)]
    after = train(tmp_path / "run", lambda taken: FAST if kill_at < border else 3 * SLOW, *changes)
    assert after["lengths"][0] == [0, planned]
    if kill_at > border:
        assert after == expected
        assert final_state(tmp_path / "run", total) == final_state(tmp_path / "whole", total)
    tried()


def test_a_batch_that_grows_does_so_as_each_length_has_it():
    train = SimpleNamespace(first_batch=2, global_batch=8, batch_warmup=0.5)
    recipe = SimpleNamespace(train=train, run=SimpleNamespace(seed=0), data=SimpleNamespace(mix_shards=0))
    stages = make_plan(recipe, SimpleNamespace(train=range(100)), [(0, 16), (6, 80)]).global_batch  # type: ignore[arg-type]
    assert stages == ((0, 2), (4, 4), (6, 2), (20, 4), (40, 8))
