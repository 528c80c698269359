"""The bench as its users see it: what may be asked, what a program gets, and what is made of the numbers."""

import json
import mmap
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reference import reference_transformers
from telling import rows_and_notes

from bertkit.bench import growth, load, machine, race, step, write
from bertkit.bench.measure import JSON_KEYS, Row, Timing, compare, facts_of, print_table
from bertkit.bench.step import Workload, check_same_loss
from bertkit.cli import main
from bertkit.cli.bench import WORKLOADS, parse_amount
from bertkit.config.recipe import shipped_recipes
from bertkit.evaluate.held_out import HeldOut
from data_pipelines.masks.loader import evaluation_batches

torch.set_num_threads(1)
TINY = Workload(layers=1, width=64, vocab_size=8192, rows=4, length=16, ragged=False)


@pytest.fixture
def tiny(monkeypatch):
    """The same benches on next to nothing."""
    for module in (load, growth, race):
        generate = module.generated_documents
        monkeypatch.setattr(
            module, "generated_documents", lambda num_chars, make=generate: make(min(num_chars, 60_000), num_words=500)
        )
    for module in (load, growth, step):
        measure = module.interleaved
        monkeypatch.setattr(
            module, "interleaved", lambda candidates, rounds, repeats=1, run=measure: run(candidates, rounds=1)
        )
    monkeypatch.setattr(load, "_STEP", TINY)
    monkeypatch.setattr(growth, "_SHORT_ROWS", TINY)


def said(capsys, *argv) -> str:
    assert main(["bench", *argv]) == 2
    return capsys.readouterr().err


def test_a_program_gets_exactly_the_agreed_keys():
    row = Row(workload="w", ours=2.0, theirs=1.0, ratio=2.0, unit="x/s", spread=0.1, input_stall=0.5)
    read = facts_of(row)
    assert read == {
        "workload": "w", "ours": 2.0, "theirs": 1.0, "ratio": 2.0, "unit": "x/s",
        "share_of_peak": None, "peak_memory_mb": None,
    }  # fmt: skip
    assert tuple(read) == JSON_KEYS


def test_a_row_tells_the_spread_of_the_middle_half():
    row = compare("w", 100, "x/s", {"ours": Timing(2.0, 1.8, 2.4, 1.7), "theirs": Timing(4.0, 4.0, 4.0, 4.0)})
    assert (row.ours, row.theirs, row.ratio) == (50, 25, 2)
    assert row.spread == pytest.approx(0.15)


def test_a_person_sees_the_columns_that_somebody_filled(capsys):
    print_table([Row(workload="w", ours=2000.0, unit="x/s", spread=0.04)], "title", ["a note"])
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("title", "2.00 k", "±4%", "a note"))
    assert not any(word in shown for word in ("theirs", "ratio", "of peak", "memory", "input", "unit"))
    assert "title, x/s" in shown


def test_a_name_stays_on_one_line_and_units_that_differ_have_a_column(capsys):
    long = "step modernbert 12×768 vocab 30522 8×128 ragged"
    wide = {"theirs": 1e4, "ratio": 10.0, "share_of_peak": 0.5, "peak_memory_mb": 2000.0, "spread": 0.1}
    print_table([Row(workload=long, ours=1e5, unit=unit, **wide) for unit in ("tokens/s", "MB/s")], "title")
    shown = capsys.readouterr().out
    assert shown.count(long) == 2
    assert "tokens/s" in shown
    assert "MB/s" in shown


@pytest.mark.parametrize(
    ("text", "value"), [("10B", 1e10), ("2.5m", 2.5e6), ("300k", 3e5), ("1e9", 1e9), ("8", 8.0), ("1T", 1e12)]
)
def test_an_amount_may_have_a_letter(text, value):
    assert parse_amount(text) == value


@pytest.mark.parametrize("text", ["", "B", "ten", "-3", "0", "nan", "1e999", "10BB"])
def test_what_is_no_amount_is_refused_with_the_way_out(text, capsys):
    with pytest.raises(ArgumentTypeError, match="300k"):
        parse_amount(text)
    assert "is not an amount" in said(capsys, "growth", f"--sizes={text}")


def test_arguments_that_the_workload_does_not_take_are_refused(capsys, tmp_path):
    assert "--corpus" in said(capsys, "step", "--corpus", "x.txt")
    assert "--recipes" in said(capsys, "load", "--recipes", "bert-mini")
    assert "--sizes" in said(capsys, "--sizes", "1,2")
    assert "--against needs a workload" in said(capsys, "--against", "transformers")
    assert "--against transformers" in said(capsys, "step", "--against", "rensa")
    assert "there is no file" in said(capsys, "prepare", "--corpus", str(tmp_path / "none.txt"))
    assert "no folder" in said(capsys, "load", "--json", str(tmp_path / "none" / "rows.json"))


def test_all_is_every_workload_in_turn(monkeypatch, tmp_path):
    seen = []

    def measure(name):
        def bench(against, quick, **options):
            seen.append((name, against, quick, options))
            yield Row(workload=name, ours=1.0, unit="x/s")

        return bench

    for name, workload in WORKLOADS.items():
        module, _, function = workload.measure.partition(":")
        monkeypatch.setattr(f"{module}.{function}", measure(name))
    text = tmp_path / "text.txt"
    text.write_text("text")
    rows = tmp_path / "rows.json"
    assert main(["bench", "all", "--quick", "--corpus", str(text), "--sizes", "1,2k", "--json", str(rows)]) == 0
    assert [name for name, *_ in seen] == list(WORKLOADS)
    assert all((against, quick) == (None, True) for _, against, quick, _ in seen)
    options = {name: given for name, _, _, given in seen}
    assert options["race"] == options["prepare"] == {"corpus": str(text)}
    assert options["growth"] == {"sizes": [1.0, 2000.0]}
    assert options["step"] == {}
    assert [row["workload"] for row in json.loads(rows.read_text())["rows"]] == list(WORKLOADS)


@pytest.mark.parametrize("form", ["table", "file", "json"])
def test_a_bench_that_is_stopped_leaves_what_it_has_measured(form, monkeypatch, tmp_path, capsys):
    def stopped(against, quick):
        yield "a note"
        yield Row(workload="first", ours=2000.0, unit="x/s", ratio=1.5)
        assert "first: 2.00 k x/s, 1.50×" in capsys.readouterr().err  # told at once
        raise KeyboardInterrupt

    monkeypatch.setattr(step, "bench_step", stopped)
    rows = tmp_path / "rows.json"
    given = {"table": [], "file": ["--json", str(rows)], "json": ["--json"]}[form]
    assert main(["bench", "step", *given]) == 130
    printed = capsys.readouterr().out
    if form == "table":
        assert all(word in printed for word in ("training step", "first", "2.00 k", "a note"))
    else:
        facts = json.loads(printed if form == "json" else rows.read_text())
        assert [row["workload"] for row in facts["rows"]] == ["first"]
        assert facts["notes"] == ["a note"]


@pytest.mark.parametrize("given", [[], ["--json"]])
def test_a_mistake_is_told_without_an_empty_table(given, capsys):
    assert main(["bench", "--recipes", "bert-tinny", *given]) == 2
    told = capsys.readouterr()
    assert "'bert-tiny'" in told.err
    assert told.out == ""


def test_sides_that_do_not_compute_the_same_are_not_compared():
    with pytest.raises(RuntimeError, match="do not compute the same"):
        check_same_loss({"ours": lambda: torch.tensor(1.0), "theirs": lambda: torch.tensor(1.1)})
    check_same_loss({"ours": lambda: torch.tensor(1.0), "theirs": lambda: torch.tensor(1.0001)})


def test_loading_stands_beside_the_step_that_consumes(tiny):
    rows, _ = rows_and_notes(load.bench_load(None, quick=True))
    assert [row.workload.split()[-1] for row in rows] == ["token", "word", "span"]
    for row in rows:
        assert row.unit == "tokens/s"
        assert row.ratio == pytest.approx(row.ours / row.theirs)


def test_growth_shows_steps_seeks_and_sizes(tiny, monkeypatch, capsys):
    def here(module, part, place, tokenizer):
        measure = {"prepare": growth.measure_prepare, "train": growth.measure_train}[part]
        return json.dumps(measure(growth._recipe(Path(place), Path(tokenizer))))

    monkeypatch.setattr(growth, "apart", here)
    monkeypatch.setattr(growth, "_TRAINED_STEPS", 2)
    rows, notes = rows_and_notes(growth.bench_growth(None, quick=True, sizes=[0.05, 0.02]))
    assert "measuring: growth, preparing and training on 0.05 MB" in capsys.readouterr().err
    assert [row.workload.split()[0] for row in rows] == ["step"] * 3 + ["seek"] * 4 + [
        "prepare",
        "start",
        "train",
    ] * 2
    assert [row.workload for row in rows if row.unit == "MB/s"] == ["prepare 0.02 MB", "prepare 0.05 MB"]
    assert all(row.ours > 0 for row in rows)
    assert all(row.peak_memory_mb >= 0 for row in rows if row.workload.startswith(("prepare", "train")))
    assert any("From 0.02 to 0.05 MB" in note for note in notes)


def test_memory_is_watched_while_something_runs():
    # Asked of the system: memory that Python or torch freed earlier would be there already.
    ballast = mmap.mmap(-1, 64 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with growth.watched_memory() as memory:
        for place in range(0, len(ballast), mmap.PAGESIZE):
            ballast[place] = 1
        memory.look()
    assert 60 < memory.most < 100


def test_every_recipe_with_a_model_of_its_own_is_measured_once():
    groups = machine.alike(machine.own_recipes())
    names = [name for group in groups for name in group]
    assert set(names) == set(shipped_recipes()) - {"continued"}
    assert ["bert-mini", "chinese-whole-word"] in groups
    with pytest.raises(ValueError, match="recipe continued"):
        machine.alike(["continued"])


def test_the_machine_is_measured_recipe_by_recipe(tiny, monkeypatch, capsys):
    monkeypatch.setattr(machine, "_NUM_CHARS", 60_000)
    rows, notes = rows_and_notes(machine.bench_machine(None, True, recipes=["bert-tiny", "bert-base"]))
    (row,) = rows
    assert row.workload.startswith("bert-tiny")
    assert row.unit == "tokens/s"
    assert row.ours > 0
    assert 0 < row.share_of_peak < 2
    assert 0 <= row.input_stall < 1
    assert row.peak_memory_mb > 4 * 4 * 8192 * 128 / 2**20
    assert any("Left out by --quick" in note and "bert-base" in note for note in notes)
    assert any("bertkit plan" in note for note in notes)


@pytest.mark.parametrize(("workers", "seconds"), [(0, 4.0), (1, 3.0), (2, 1.0), (4, 0.0)])
def test_workers_hide_loading_behind_the_step(workers, seconds):
    assert machine.waiting(load_seconds=4.0, step_seconds=1.0, num_workers=workers) == seconds


def test_a_race_needs_an_opponent():
    rows, notes = rows_and_notes(race.bench_race(None, quick=True))
    assert rows == []
    assert "--against transformers" in notes[0]


@pytest.fixture
def racing(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(race.generated_documents(120_000, num_words=500)))
    course = race.Race(their_steps=2, their_batch=4, held_out_rows=6, score_every=1, minutes=0.001)
    recipe = race._recipe(tmp_path, str(text), True, course)
    recipe = replace(
        recipe,
        data=replace(recipe.data, validation_share=0.2, seq_len=32),
        model=replace(recipe.model, hidden_size=32, num_attention_heads=2, intermediate_size=32, num_hidden_layers=2),
        train=replace(recipe.train, minutes=None, steps=6),
    )
    return course, recipe, race.open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run, loud=False)


def test_writing_is_measured_with_and_without_kept_keys(monkeypatch):
    monkeypatch.setattr(write, "_BATCH", 2)
    rows, notes = rows_and_notes(write.bench_write(None, quick=True))
    names = [row.workload for row in rows]
    assert names[0] == "left to right, 10 characters"
    assert sum("parallel in 4 passes" in name for name in names) == 2
    assert sum("parallel between tokens in 4 passes" in name for name in names) == 2
    assert all(row.ours > 0 and row.unit == "texts/s" for row in rows)
    assert [row.ratio is not None for row in rows] == ["left" in name for name in names]
    assert any("2 texts at once" in note for note in notes)


def test_both_racers_are_asked_the_same_on_the_same_rows(racing):
    """The padded questions, asked of our model, give the loss that our own evaluation gives."""
    course, recipe, data = racing
    finish = race.run_ours(recipe, data, course, goal=0.0)
    assert finish.steps == 6
    questions = list(race.padded_questions(data, course))
    assert sum(len(ids) for ids, _, _ in questions) == 6
    held_out = HeldOut(
        data.validation, data.tokenizer, data.train.token_counts(), mask_rate=0.15, max_rows=6, micro_batch=4
    )
    asked = list(evaluation_batches(data.validation, held_out._collator, micro_batch=4, max_rows=6))
    for (ids, mask, labels), batch in zip(questions, asked, strict=True):
        assert torch.equal(ids[mask == 1], torch.as_tensor(batch.input_ids))
        assert torch.equal(labels[labels != -100], torch.as_tensor(batch.target_ids))
        assert bool((labels[mask == 0] == -100).all())


def test_ours_stops_as_soon_as_it_is_there(racing):
    course, recipe, data = racing
    assert race.run_ours(recipe, data, course, goal=100.0).steps == 1


def test_a_race_is_run_and_told(tiny, monkeypatch):
    reference_transformers()
    course = race.Race(their_steps=2, their_batch=4, held_out_share=0.3, held_out_rows=8, score_every=1, minutes=0.001)
    (row,), notes = rows_and_notes(race.bench_race("transformers", True, race=course))
    assert row.unit == "s"
    assert row.ratio is None or row.ratio == pytest.approx(row.theirs / row.ours)
    assert any("2 steps of 4×128" in note for note in notes)
