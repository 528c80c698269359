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


def test_an_unknown_verb_names_the_nearest(capsys):
    assert main(["--helpp"]) == 2
    assert "unknown verb" in capsys.readouterr().err


def test_no_arguments_show_the_overview(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS)


def test_control_codes_in_a_message_are_not_obeyed(capsys):
    assert main(["\x1b[31mred"]) == 2
    assert "\x1b" not in capsys.readouterr().err
