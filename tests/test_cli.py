"""The command line answers at once, and says what is wrong in one line with exit code 2."""

import subprocess
import sys

import pytest

from bertkit.cli import VERBS, main

HEAVY = ("torch", "numpy", "tokenizers", "datasets", "accelerate", "transformers", "pyarrow")


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
        ("fill", "--model", "nowhere", "a [MASK]"),
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
def test_a_wrong_path_imports_nothing_heavy(argv):
    assert not modules_after(*argv) & set(HEAVY)


def test_an_unknown_verb_names_the_nearest(capsys):
    assert main(["--helpp"]) == 2
    assert "unknown verb" in capsys.readouterr().err


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
