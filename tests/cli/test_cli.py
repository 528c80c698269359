"""The command line answers at once, and says what is wrong in one line with exit code 2."""

import subprocess
import sys

import pytest
from small_model import save_small_model

from bertkit import cli
from bertkit.cli import VERBS, main

HEAVY = ("torch", "numpy", "tokenizers", "datasets", "accelerate", "transformers", "pyarrow")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A file where folders are wanted, and one of each thing that verbs read."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "file").write_text("")
    (folder / "text.txt").write_text("anna paints the old house\n")
    (folder / "tags.conll").write_text("anna B-PER\npaints O\n")
    save_small_model(folder / "model", folder / "text.txt", vocab_size=64, positions=16)
    (folder / "run").mkdir()
    (folder / "run" / "metrics.jsonl").write_text("")
    return folder


def modules_after(*argv: str) -> set[str]:
    code = f"import sys; from bertkit.cli import main; main({list(argv)!r}); print('MODULES', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("MODULES")[2].split())


@pytest.mark.parametrize("argv", [("--help",), ("prepar",), *((verb, "--help") for verb in VERBS)])
def test_help_and_typos_import_nothing_heavy(argv):
    assert not modules_after(*argv) & set(HEAVY)


@pytest.mark.parametrize(
    "argv",
    [
        ("demo", "--dir", "file"),
        ("demo", "--dir", "file/new"),
        ("demo", "--dir", "model"),
        ("finetune", "ner", "data.train=nothing.conll"),
        ("finetune", "ner", "data.train=tags.conll", "data.dev=nothing.conll"),
        ("finetune", "ner", "data.train=tags.conll", "data.test=nothing.conll"),
        ("finetune", "ner", "data.train=tags.conll", "model.init=nowhere"),
        ("finetune", "ner", "data.train=tags.conll", "model.init=run"),
        ("finetune", "ner", "data.train=tags.conll", "model.like=nowhere"),
        ("finetune", "ner", "data.train=tags.conll", "model.like=run"),
        ("finetune", "ner", "data.train=tags.conll", "run.dir=file"),
        ("finetune", "ner", "data.train=tags.conll", "run.dir=file/new"),
        ("finetune", "text-classification", "data.train=nothing.csv"),
        ("pretrain", "bert-mini", "data.corpus=nothing.txt"),
        ("pretrain", "bert-mini", "data.corpus=text.txt", "run.dir=file/new"),
        ("pretrain", "bert-mini", "data.corpus=text.txt", "data.cache_dir=file"),
        ("pretrain", "bert-mini", "data.corpus=text.txt", "tokenizer.path=run"),
        ("pretrain", "bert-mini", "data.prepared=nowhere"),
        ("pretrain", "continued", "data.corpus=text.txt", "model.init=nowhere"),
        ("pretrain", "continued", "data.corpus=text.txt", "model.init=run"),
        ("fill", "--model", "nowhere", "a [MASK]"),
        ("fill", "--model", "run", "a [MASK]"),
        ("info", "run"),
        ("import", "run", "new"),
        ("export", "run", "new"),
        ("attention", "--model", "run", "text"),
        ("evaluate", "run", "text.txt"),
        ("evaluate", "model", "nothing.txt"),
        ("tag", "--model", "run"),
        ("tokenizer", "train", "--corpus", "text.txt", "--out", "file"),
        ("inspect-masks", "--data", "nowhere"),
        ("inspect-masks", "--tokenizer", "run", "text"),
        ("info", "nowhere"),
        ("import", "nowhere", "new"),
        ("export", "nowhere", "new"),
        ("attention", "--model", "nowhere", "text"),
        ("report", "nowhere"),
        ("evaluate", "nowhere", "nothing.txt"),
        ("tag", "--model", "nowhere"),
        ("tag", "--model", ".", "nothing.txt"),
        ("prepare", "--corpus", "nothing.txt", "--tokenizer", "nowhere", "--out", "new"),
        ("tokenizer", "doctor", "--corpus", "nothing.txt", "--tokenizer", "nowhere"),
    ],
    ids=" ".join,
)
def test_a_wrong_path_imports_nothing_heavy(argv, home, monkeypatch):
    monkeypatch.chdir(home)
    before = set(home.rglob("*"))
    code = f"import sys; from bertkit.cli import main; print(main({list(argv)!r}), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    status, *modules = done.stdout.split()
    assert status == "2", done.stderr
    assert not set(modules) & set(HEAVY)
    assert done.stderr.count("\n") == 1
    assert set(home.rglob("*")) == before


def test_an_unknown_verb_names_the_nearest(capsys):
    assert main(["--helpp"]) == 2
    assert "unknown verb" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["clean --corpus a.txt --out", "tokenizer train --corpus a.txt --out", "report"])
def test_where_a_path_is_meant_a_url_makes_no_folder(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*words.split(), "s3://bucket/new"]) == 2
    assert "s3://bucket/new is a URL" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_flag_may_stand_between_a_recipe_and_its_changes(capsys):
    changes = ["data.corpus=my.txt", "train.steps=7"]
    printed = []
    for place in range(3):
        assert main(["pretrain", "bert-mini", *changes[:place], "--print-config", *changes[place:]]) == 0
        printed.append(capsys.readouterr().out)
    assert "steps: 7" in printed[0]
    assert printed[0] == printed[1] == printed[2]


def test_no_arguments_show_the_overview(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS)


def test_control_codes_in_a_message_are_not_obeyed(capsys):
    assert main(["\x1b[31mred"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("tokenizer train --corpus text.txt --out file", "file is a file"),
        ("tokenizer train --corpus text.txt --out file/new", "file is a file"),
        ("demo --dir file", "file is a file"),
        ("demo --dir file/new", "file is a file"),
        ("prepare --corpus text.txt --tokenizer model --out file", "file holds something"),
        ("prepare --corpus text.txt --tokenizer model --out file/new", "file is a file"),
        ("prepare --merge file", "file holds no parts"),
        ("pretrain bert-mini data.corpus=text.txt run.dir=file/new", "run.dir=file/new: file is a file"),
        ("pretrain bert-mini data.corpus=text.txt run.dir=new data.cache_dir=file", "data.cache_dir=file is a file"),
        ("finetune ner data.train=tags.conll model.init=model run.dir=file/new", "run.dir=file/new: file is a file"),
        ("pretrain bert-mini data.corpus=text.txt run.dir=s3://bucket/run", "run.mirror=s3://bucket/run"),
        (
            "finetune ner data.train=tags.conll model.init=model run.dir=s3://bucket/run",
            "bertkit: run.dir must be a folder",
        ),
        ("import model file", "file is a file"),
        ("import model file/new", "file is a file"),
        ("report run --out .", ". is a folder"),
        ("report run --out file/new", "file is a file"),
        ("bench collator --quick --json .", "--json: . is a folder"),
        ("bench collator --quick --json nowhere/new.json", "--json: there is no folder nowhere"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_in_words(words, complaint, home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    assert main(words.split()) == 2
    said = capsys.readouterr().err.strip()
    assert complaint in said
    assert "Errno" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (IsADirectoryError(21, "Is a directory", "."), 2, ". is a folder"),
        (FileNotFoundError(2, "No such file or directory", "nowhere/new"), 2, "there is no folder nowhere"),
        (FileNotFoundError(2, "No such file or directory", "nothing"), 2, "there is no nothing"),
        (PermissionError(13, "Permission denied", b"file"), 2, "file: Permission denied"),
        (OSError(39, "Directory not empty", "new", None, "run"), 2, "run: Directory not empty"),
        (OSError(9, "Bad file descriptor", 5), 2, "Bad file descriptor"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (OSError("3 bytes are free"), 1, "3 bytes are free"),
    ],
)
def test_an_error_of_the_system_is_told_without_its_number(error, code, said, home, monkeypatch, capsys):
    def fail(*arguments):
        raise error

    monkeypatch.chdir(home)
    monkeypatch.setattr(cli, "_dispatch", fail)
    assert main([]) == code
    told = capsys.readouterr().err
    assert told.startswith(f"bertkit: {said}")
    assert told.count("\n") == 1
