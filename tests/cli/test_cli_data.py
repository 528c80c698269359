"""The verbs of the data line, end to end on a small text: what they print, refuse and leave behind."""

import gzip
import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from grammar import documents, write_corpus

from bertkit.cli import main
from data_pipelines import durable
from data_pipelines.rows import prepare as module
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import Part, merge, prepare, unknown_share
from data_pipelines.rows.shards import open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import find_sources, read_documents
from data_pipelines.text.readers import NOT_TEXT
from data_pipelines.vocab import tokenizer as tokenizers
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    write_corpus(folder / "corpus.txt", count=60)
    train_tokenizer(CorpusConfig(corpus=[str(folder / "corpus.txt")]), TokenizerConfig(vocab_size=200), folder / "t")
    return folder


def sources(home) -> list[str]:
    return ["--corpus", str(home / "corpus.txt"), "--tokenizer", str(home / "t"), "--seq-len", "32"]


def test_a_tokenizer_is_trained_and_examined(home, tmp_path, capsys):
    corpus, out = str(home / "corpus.txt"), str(tmp_path / "new" / "t")
    train = ["tokenizer", "train", "--corpus", corpus, "--vocab-size", "200", "--out", out]
    assert main(train) == 0
    assert main(train) == 0  # over the old one
    assert main(["tokenizer", "doctor", "--tokenizer", out, "--corpus", corpus]) == 0
    shown = capsys.readouterr().out
    assert shown.count("60 documents") == 3
    assert shown.count("0.000% of the tokens") == 3
    assert "special tokens   in order" in shown
    assert not list(Path(out).glob("*.tmp"))


def test_a_folder_of_something_else_is_refused_before_training(home, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tokenizers, "train_tokenizer", pytest.fail)
    (tmp_path / "thesis.tex").write_text("precious")
    (tmp_path / "file").write_text("")
    for out, named in ((tmp_path, "tokenizer (file)"), (tmp_path / "file", "file is a file")):
        assert main(["tokenizer", "train", "--corpus", str(home / "corpus.txt"), "--out", str(out)]) == 2
        assert named in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", " \n\n\t\n", "\u200b"])
def test_a_text_with_nothing_to_examine_is_refused(home, tmp_path, capsys, text):
    (tmp_path / "empty.txt").write_text(text, encoding="utf-8")
    doctor = ["tokenizer", "doctor", "--tokenizer", str(home / "t"), "--corpus", str(tmp_path / "empty.txt")]
    assert main(doctor) == 2
    told = capsys.readouterr()
    assert told.err.endswith("empty.txt holds no text to examine the tokenizer on\n")
    assert not told.out


def test_a_typo_in_a_sub_command_names_its_nearest_flag(capsys):
    assert main(["tokenizer", "train", "--corpus", "a", "--out", "b", "--vocab-sze", "300"]) == 2
    told = capsys.readouterr().err
    assert "did you mean '--vocab-size'?" in told
    assert "Try 'bertkit tokenizer train --help'" in told


@pytest.mark.parametrize("action", ["train", "doctor"])
def test_sub_commands_explain_themselves(action, capsys):
    assert main(["tokenizer", action, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"bertkit tokenizer {action} --" in shown
    assert "examples:" in shown
    assert {"train": "Train a tokenizer", "doctor": "how well"}[action] in shown


def test_prepare_says_what_it_did_and_that_it_is_done(home, tmp_path, capsys):
    argv = ["prepare", *sources(home), "--out", str(tmp_path / "data")]
    assert main(argv) == 0
    first = capsys.readouterr().out
    assert first.index("kB of shards to write") < first.index("train") < first.index("wrote")
    assert "0.00% of the tokens" in first
    assert "nothing to do" not in first
    assert main(argv) == 0
    again = capsys.readouterr().out
    assert "nothing to do" in again
    assert "wrote" not in again


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [(0, "0.1 kB"), (1_234, "1.2 kB"), (49_000, "49.0 kB"), (2_500_000, "2.5 MB"), (1_250_000_000_000, "1,250.0 GB")],
)
def test_the_estimate_is_shown_in_a_fitting_unit(home, tmp_path, monkeypatch, capsys, num_bytes, shown):
    monkeypatch.setattr(module.Estimate, "num_bytes", num_bytes)
    monkeypatch.setattr(module, "_check_disk", lambda *arguments: None)
    assert main(["prepare", *sources(home), "--out", str(tmp_path / "data")]) == 0
    assert f"about {shown} of shards to write\n" in capsys.readouterr().out


def test_work_on_a_corpus_of_unknown_size_is_work(home, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "corpus_bytes", lambda corpus: None)
    assert main(["prepare", *sources(home), "--out", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().out
    assert "nothing to do" not in shown
    assert "of shards" not in shown


def test_the_estimate_is_reported_before_the_first_batch(home, tmp_path):
    reports: list = []
    corpus = CorpusConfig(corpus=[str(home / "corpus.txt")])
    prepare(corpus, home / "t", PrepareConfig(), tmp_path / "data", report=reports.append)
    assert (reports[0].chars, reports[0].tokens) == (0, 0)
    assert reports[0].estimated_bytes > 0


def test_parts_make_the_set_that_one_run_makes(home, tmp_path, capsys):
    parts, whole = str(tmp_path / "parts"), str(tmp_path / "whole")
    for part in ("1/2", "2/2"):
        assert main(["prepare", *sources(home), "--out", parts, "--part", part]) == 0
    assert main(["prepare", *sources(home), "--out", whole]) == 0
    assert main(["prepare", *sources(home), "--out", parts]) == 2
    assert "--merge" in capsys.readouterr().err
    assert main(["prepare", "--merge", parts, "--seq-len", "32", "--part", "1/2"]) == 2
    assert "--part, --seq-len" in capsys.readouterr().err
    assert main(["prepare", "--merge", parts]) == 0
    assert open_rows(parts).token_counts()[5:].tolist() == open_rows(whole).token_counts()[5:].tolist()
    capsys.readouterr()
    assert main(["prepare", "--merge", parts]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_part_inside_a_finished_set_is_refused(home, tmp_path, capsys):
    out = ["--out", str(tmp_path / "data")]
    assert main(["prepare", *sources(home), *out]) == 0
    assert main(["prepare", *sources(home), *out, "--part", "1/2"]) == 2
    assert "choose another folder" in capsys.readouterr().err
    assert not list((tmp_path / "data").glob("part-*"))


def test_an_interrupted_preparation_says_how_to_resume(home, tmp_path, monkeypatch, capsys):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_fill", interrupt)
    assert main(["prepare", *sources(home), "--out", str(tmp_path / "data")]) == 130
    assert "interrupted; the same command resumes" in capsys.readouterr().err


def test_the_share_of_unknown_tokens_is_shown_and_warned_of(home, tmp_path, capsys):
    # Two known tokens, and three words in a script that the tokenizer never saw.
    (tmp_path / "mixed.txt").write_text("anna .\n\nжжж жжж жжж", encoding="utf-8")
    argv = ["prepare", "--corpus", str(tmp_path / "mixed.txt"), "--tokenizer", str(home / "t"), "--out"]
    assert main([*argv, str(tmp_path / "data")]) == 0
    told = capsys.readouterr()
    assert unknown_share(tmp_path / "data") == pytest.approx(3 / 5)
    assert "60.00% of the tokens" in told.out
    assert "60.0%" in told.err


def test_a_corpus_of_which_nothing_is_known_is_refused(home, tmp_path):
    (tmp_path / "foreign.txt").write_text("жжж жжж\n\nжж", encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(tmp_path / "foreign.txt")])
    for _ in range(2):
        with pytest.raises(ValueError, match="every word of the corpus is unknown"):
            prepare(corpus, home / "t", PrepareConfig(), tmp_path / "data")


@pytest.mark.parametrize(("text", "fits"), [("жжж\n\nanna", True), ("жжж\n\nжжж", False)])
def test_of_parts_only_all_together_must_hold_something_known(home, tmp_path, text, fits):
    (tmp_path / "corpus.txt").write_text(text, encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(tmp_path / "corpus.txt")])
    for number in (1, 2):
        prepare(corpus, home / "t", PrepareConfig(), tmp_path / "parts", part=Part(number, 2))
    with nullcontext() if fits else pytest.raises(ValueError, match="every word of the corpus is unknown"):
        merge(tmp_path / "parts")


@pytest.mark.parametrize("name", ["a.json", "a.ndjson", "a.jsonl", "a.JSON", "a.json.gz"])
def test_json_lines_have_many_names(tmp_path, name):
    data = b'{"text": "one"}\n{"text": "two"}\n'
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    for corpus in (tmp_path / name, tmp_path):
        read = read_documents(CorpusConfig(corpus=[str(corpus)]))
        assert [document.text for document in read] == ["one", "two"]


@pytest.mark.parametrize("name", [*(f"a{suffix}" for suffix in sorted(NOT_TEXT)), "a.tar.gz", "a.PDF"])
def test_what_is_surely_no_text_is_refused(tmp_path, name):
    (tmp_path / name).write_text("text")
    with pytest.raises(ValueError, match=r"\.txt \.jsonl .*\.parquet"):
        find_sources(CorpusConfig(corpus=[str(tmp_path / name)]))


def test_hints_fit_flags_and_recipes(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "x"}')
    (tmp_path / "b.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"--field NAME or data\.field=NAME"):
        list(read_documents(CorpusConfig(corpus=[str(tmp_path / "a.jsonl")])))
    with pytest.raises(ValueError, match=r"--errors replace or data\.errors=replace"):
        list(read_documents(CorpusConfig(corpus=[str(tmp_path / "b.txt")])))


def whole_text(text: str) -> list[str]:
    """A segmenter to which every text is one word."""
    return [text]


def test_any_callable_can_say_what_words_are(home, tmp_path):
    corpus, config = CorpusConfig(corpus=[str(home / "corpus.txt")]), PrepareConfig(rows="line")
    folder = prepare(corpus, home / "t", config, tmp_path / "data", segmenter=whole_text)
    batch = open_rows(folder).gather(np.arange(1))
    assert batch.starts_word_T[1:-1].sum() == 1
    identity = json.loads((folder / "manifest.json").read_text())["identity"]
    assert identity["prepare"]["segmenter"] == f"{__name__}.whole_text"
    with pytest.raises(ValueError, match="segmenter"):
        prepare(corpus, home / "t", config, folder)


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_vocabulary_alone_makes_berts_tokenizer(home, tmp_path, lowercase):
    trained = load_tokenizer(home / "t")
    by_id = sorted(trained.backend.get_vocab().items(), key=lambda item: item[1])
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in by_id), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    read = load_tokenizer(tmp_path)
    assert read.special == trained.special
    for text in [*documents(5), "anna paints [MASK]."]:
        assert read.backend.encode(text).ids == trained.backend.encode(text).ids
    same = read.backend.encode("ANNA").ids == read.backend.encode("anna").ids
    assert same is lowercase


def test_a_save_that_is_killed_leaves_the_old_file(home, tmp_path, monkeypatch):
    trained = load_tokenizer(home / "t")
    trained.save(tmp_path)
    before = (tmp_path / "tokenizer.json").read_bytes()

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(durable.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        trained.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == before
