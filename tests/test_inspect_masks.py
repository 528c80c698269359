"""inspect-masks shows the same story from shards and from texts, and leaves plain text in a pipe."""

import os
import subprocess
import sys

import pytest
from grammar import documents, write_corpus

from bertkit.cli import main
from data_pipelines.config import CorpusConfig, PrepareConfig, TokenizerConfig
from data_pipelines.prepare import prepare
from data_pipelines.tokenizer import train_tokenizer


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
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
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


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--sample 0", "--sample must be at least 1, got 0"),
        ("--show -1", "--show must be at least 0, got -1"),
        ("--epoch -1", "--epoch must be at least 0, got -1"),
        ("--final-rate 0.3", "--final-rate"),
        ("text", "--data brings rows and tokenizer of its own"),
    ],
)
def test_what_makes_no_sense_is_refused(home, argv, expected, capsys):
    assert main(["inspect-masks", "--data", str(home / "data"), *argv.split()]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_refused(home, text, capsys):
    assert main(["inspect-masks", "--tokenizer", str(home / "tokenizer"), "fine", text]) == 2
    assert "a text to mask is empty" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--data", "nowhere"], ["--tokenizer", "nowhere", "text"]])
def test_a_wrong_path_is_told_before_anything_heavy_is_imported(argv):
    code = f"import sys; from bertkit.cli import main; print(main({['inspect-masks', *argv]!r}), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    code, *modules = done.stdout.split()
    assert code == "2"
    assert "nowhere" in done.stderr
    assert not {"numpy", "rich", "tokenizers", "torch"}.intersection(modules)
