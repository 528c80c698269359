"""inspect-masks shows the same story from shards and from texts, and leaves plain text in a pipe."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from grammar import documents, write_corpus
from telling import tells

from bertkit.cli import main
from bertkit.report import inspect_masks
from bertkit.report.inspect_masks import rows_from_shards, rows_from_texts
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "corpus.txt", count=60))])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=200), folder / "tokenizer")
    prepare(corpus, folder / "tokenizer", PrepareConfig(seq_len=32), folder / "data")
    return folder


def piped(*argv) -> str:
    command = [sys.executable, "-m", "bertkit", "inspect-masks", *map(str, argv)]
    environment = os.environ | {"COLUMNS": "80"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_piped_output_is_plain_and_fits_80_columns(home):
    from_shards = piped("--data", home / "data", "--show", 0)
    from_texts = piped("--tokenizer", home / "tokenizer", *documents(3), "--show", 0)
    for shown in (from_shards, from_texts):
        assert "\x1b" not in shown
        assert max(map(len, shown.splitlines())) <= 80
        assert "replaced by [MASK], of the selected" in shown


@pytest.mark.parametrize("source", ["shards", "texts"])
def test_rows_show_what_was_and_what_is(home, source, capsys):
    texts = ["--tokenizer", str(home / "tokenizer"), *documents(3)]
    argv = ["--data", str(home / "data")] if source == "shards" else texts
    assert (
        main(["inspect-masks", *argv, "--show", "2", "--rate", "0.5", "--mask-share", "1", "--random-share", "0"]) == 0
    )
    shown = capsys.readouterr().out
    rows = shown[: shown.index("was→[MASK]")].split("\n\n")[:2]
    for row in rows:
        assert row.startswith("[CLS] ")
        assert "→[MASK]" in row
        assert "~→" not in row
        assert "=" not in row


def test_another_epoch_has_other_masks(home, capsys):
    shown = []
    for epoch in ("0", "0", "1"):
        main(["inspect-masks", "--data", str(home / "data"), "--epoch", epoch])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


def test_a_changing_rate_is_shown_at_its_steps(home, capsys):
    schedule = ["--rate", "0.6", "--final-rate", "0.2", "--steps", "1000"]
    main(["inspect-masks", "--data", str(home / "data"), *schedule, "--step", "400", "--show", "0"])
    shown = capsys.readouterr().out
    steps = {0: 0.6, 250: 0.5, 400: 0.44, 500: 0.4, 750: 0.3, 1000: 0.2}
    for step, expected in steps.items():
        found = re.search(rf"step {step:,}\b.*│ *([\d.]+)%", shown)
        assert float(found[1]) / 100 == pytest.approx(expected, abs=2e-4)  # short rows have a target, too
    assert "44.00%" in shown[: shown.index("by step")]  # what the rows above were masked with
    main(["inspect-masks", "--data", str(home / "data"), *schedule, "--step", "400", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert {entry["step"]: pytest.approx(entry["expected"], abs=2e-4) for entry in facts["schedule"]} == steps
    assert all(abs(entry["share"] - entry["expected"]) < 0.05 for entry in facts["schedule"])
    assert facts["rates"][0]["expected"] == pytest.approx(0.44)


def test_the_rows_are_those_of_the_shards_under_their_own_numbers(home):
    source = rows_from_shards(home / "data", sample=5)
    assert source.row_ids.tolist() == list(range(5))
    assert np.array_equal(source.gather(source.row_ids).ids_T, open_rows(home / "data").gather(np.arange(5)).ids_T)


def test_rows_are_measured_a_few_at_a_time(home, capsys, monkeypatch):
    def measured() -> str:
        schedule = ["--rate", "0.6", "--final-rate", "0.2", "--steps", "10"]
        assert main(["inspect-masks", "--data", str(home / "data"), *schedule]) == 0
        return capsys.readouterr().out

    at_once = measured()
    monkeypatch.setattr(inspect_masks, "_ROWS_AT_ONCE", 7)
    assert measured() == at_once


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--sample 0", "--sample … 1 … 0"),
        ("--show -1", "--show … 0 … -1"),
        ("--epoch -1", "--epoch … 0 … -1"),
        ("--final-rate 0.3", "--steps"),
        ("--final-rate 0.3 --steps 0", "--steps"),
        ("--final-rate 0.3 --steps 10 --step 11", "--step … 0 … --steps 10 … 11"),
        ("--final-rate 0.3 --steps 10 --step -1", "--step … 0 … --steps 10 … -1"),
        ("--step 3", "--step … --steps … --final-rate"),
        ("--steps 10", "--step … --steps … --final-rate"),
        ("text", "--data"),
    ],
)
def test_what_makes_no_sense_is_refused(home, argv, expected, capsys):
    assert main(["inspect-masks", "--data", str(home / "data"), *argv.split()]) == 2
    assert tells(capsys.readouterr().err, expected)


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_refused(home, text, capsys):
    assert main(["inspect-masks", "--tokenizer", str(home / "tokenizer"), "fine", text]) == 2
    assert "a text to mask is empty" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--data", "nowhere"], ["--tokenizer", "nowhere", "text"]])
def test_a_wrong_path_is_told_before_anything_heavy_is_imported(argv):
    code = f"import sys; from bertkit.cli import main; print(main({['inspect-masks', *argv]!r}), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    code, *modules = done.stdout.split()
    assert code == "2"
    assert "nowhere" in done.stderr
    assert not {"numpy", "rich", "tokenizers", "torch"}.intersection(modules)


def test_a_clause_of_chinese_is_many_words_to_a_byte_level_tokenizer_too(tmp_path):
    (tmp_path / "c.txt").write_text("我来到北京", encoding="utf-8")
    corpus, config = CorpusConfig(corpus=[str(tmp_path / "c.txt")]), TokenizerConfig(kind="bpe", vocab_size=270)
    train_tokenizer(corpus, config, tmp_path / "bpe")
    rows = rows_from_texts(tmp_path / "bpe", ["我来到北京"]).gather(np.arange(1))
    assert rows.starts_word_T[1:-1].sum() == 5
