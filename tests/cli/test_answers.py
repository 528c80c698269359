"""`--json` prints one object and nothing else, `--json FILE` writes the same beside the usual text, in every verb."""

import argparse
import json
from importlib import import_module

import pytest
from grammar import write_corpus
from small_model import save_small_model

from bertkit.cli import VERBS, Parser, main

TEXT = "anna paints the [MASK] house"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    write_corpus(folder / "text.txt", count=40)
    (folder / "text.jsonl").write_text('{"text": "anna paints the old house ."}\n')
    (folder / "pairs.tsv").write_text("anna paints the house\tanna paint the house\n")
    save_small_model(folder / "model", folder / "text.txt", vocab_size=200, positions=32)
    return folder


@pytest.fixture(autouse=True)
def in_it(home, monkeypatch):
    monkeypatch.chdir(home)


ANSWERS = {
    "info model": {"architecture", "config", "parameters", "labels", "num_parameters", "memory"},
    "evaluate model text.txt --words 5 --max-rows 5": {"loss", "perplexity", "accuracy", "buckets"},
    "judge model pairs.tsv": {"accuracy", "low", "high", "ties", "chance", "groups", "paradigms", "ngram"},
    "tokenizer doctor --tokenizer model --corpus text.txt": {"num_documents", "unknown_rate", "pieces_per_word"},
    "tokenizer train --corpus text.txt --vocab-size 200 --out new-tokenizer": {"folder", "vocab_size", "held_out"},
    "prepare --corpus text.txt --tokenizer model --out rows --seq-len 32": {"folder", "train", "validation", "written"},
    "inspect-masks --tokenizer model anna": {"rows", "tokens", "rates", "schedule"},
    "bench collator --quick": {"rows", "notes"},
}


@pytest.mark.parametrize("words", ANSWERS)
def test_a_program_gets_one_object_printed_or_in_a_file(words, capsys, tmp_path, request):
    if words.startswith("bench"):
        request.getfixturevalue("tiny_bench")
    assert main([*words.split(), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert ANSWERS[words] <= set(printed)
    assert main([*words.split(), "--json", str(tmp_path / "facts.json")]) == 0
    assert set(json.loads((tmp_path / "facts.json").read_text())) == set(printed)
    shown = capsys.readouterr().out
    assert shown
    with pytest.raises(ValueError):
        json.loads(shown)


@pytest.fixture
def tiny_bench(monkeypatch):
    from bertkit.bench import collator
    from bertkit.bench.measure import interleaved

    monkeypatch.setattr(collator, "interleaved", lambda candidates, rounds, repeats=1: interleaved(candidates, 1))


def test_lines_are_answered_with_lines(capsys, tmp_path):
    assert main(["fill", "--model", "model", TEXT, "[MASK]", "--json"]) == 0
    printed = capsys.readouterr().out
    assert [json.loads(line)["text"] for line in printed.splitlines()] == [TEXT, "[MASK]"]
    assert main(["fill", "--model", "model", TEXT, "[MASK]", "--json", str(tmp_path / "facts.jsonl")]) == 0
    assert (tmp_path / "facts.jsonl").read_text() == printed
    assert "%" in capsys.readouterr().out


def read(verb: str, *words: str) -> argparse.Namespace:
    parser = Parser(prog=verb)
    getattr(import_module(VERBS[verb].module), verb)(parser)
    return parser.parse_args(list(words))


@pytest.mark.parametrize(
    ("words", "file", "others"),
    [
        ("evaluate model text.txt --json", "-", ["model", "text.txt"]),
        ("evaluate --json model text.txt", "-", ["model", "text.txt"]),
        ("evaluate model --json text.txt", "-", ["model", "text.txt"]),
        # A corpus may be JSON Lines. It is never taken for the file to write.
        ("evaluate model --json text.jsonl", "-", ["model", "text.jsonl"]),
        ("evaluate model --json text.jsonl text.txt", "-", ["model", "text.jsonl", "text.txt"]),
        ("evaluate model text.txt --json new.json", "new.json", ["model", "text.txt"]),
        ("evaluate model text.txt --json new.json --words 0", "new.json", ["model", "text.txt"]),
        ("evaluate --json=new model text.txt", "new", ["model", "text.txt"]),
        ("info --json model", "-", ["model"]),
        ("info model --json new.json", "new.json", ["model"]),
        ("info --json new.json --seq-len 8 model", "new.json", ["model"]),
        ("fill --model m --json [MASK]", "-", ["[MASK]"]),
        ("fill --model m --json [MASK].json", "-", ["[MASK].json"]),
        ("fill --model m [MASK] --json [MASK]", "-", ["[MASK]", "[MASK]"]),
        ("fill --model m [MASK] --json new.jsonl", "new.jsonl", ["[MASK]"]),
        ("fill --model m --json - -- [MASK]", "-", ["[MASK]"]),
        ("fill --model m -- --json new.jsonl", None, ["--json", "new.jsonl"]),
        ("bench --json", "-", []),
        ("bench --json measured", "measured", []),
        ("bench --json measured step", "measured", ["step"]),
        ("bench step --json measured", "measured", ["step"]),
        ("bench --json step", "-", ["step"]),
    ],
)
def test_the_word_after_json_is_a_file_only_where_it_can_be_nothing_else(words, file, others):
    verb, *rest = words.split()
    arguments = vars(read(verb, *rest))
    found = [arguments.get(name) for name in ("model", "corpus", "folder", "text", "workload")]
    if verb == "fill":
        found = [arguments["text"]]
    flat = [word for each in found if each for word in ([each] if isinstance(each, str) else each)]
    assert (arguments["json"], flat) == (file, others)


def test_an_older_file_is_replaced_whole_and_no_link_is_followed(home, tmp_path, capsys):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "facts.json").symlink_to(tmp_path / "precious")
    for _ in range(2):
        assert main(["info", "model", "--json", str(tmp_path / "facts.json")]) == 0
    assert json.loads((tmp_path / "facts.json").read_text())["num_parameters"] > 0
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize(("place", "named"), [(".", "is a folder"), ("nowhere/facts.json", "nowhere")])
def test_a_place_that_cannot_be_written_is_told_before_the_work(place, named, capsys):
    assert main(["evaluate", "model", "text.txt", f"--json={place}"]) == 2
    told = capsys.readouterr()
    assert "--json" in told.err
    assert named in told.err
    assert not told.out


def test_a_number_that_is_not_finite_is_null(monkeypatch, capsys):
    monkeypatch.setattr("bertkit.evaluate.folder.evaluate_folder", lambda *_: {"loss": float("nan"), "inf": [1e999]})
    assert main(["evaluate", "model", "text.txt", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"loss": None, "inf": [None]}
