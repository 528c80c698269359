"""`--plugin MODULE` (bertkit.plugins) imports a module of the user's own first; only the command line can ask."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bertkit.cli import VERBS

ROOT = Path(__file__).parent.parent.parent


def bertkit(*argv: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    """The command line as a program installs it: the current folder is not on the Python path."""
    code = "import sys; sys.path.remove(''); from bertkit.cli import main; sys.exit(main())"
    environment |= {"PYTHONPATH": str(ROOT), "PATH": ""}
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "first_of_two.py").write_text("print('first')\n")
    (tmp_path / "second_of_two.py").write_text("print('second')\n")
    (tmp_path / "json.py").write_text("print('never')\n")
    (tmp_path / "broken.py").write_text("import json\n1 / 0\n")
    (tmp_path / "misspelt.py").write_text("import nowhere_to_be_found\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit()\n")
    (tmp_path / "garbled.py").write_text("def\n")
    return tmp_path


@pytest.mark.parametrize(
    "argv",
    [
        ("--plugin", "first_of_two", "--plugin", "second_of_two", "evaluate", "--help"),
        ("--plugin=first_of_two", "evaluate", "--plugin", "second_of_two", "--help"),
        ("evaluate", "--help", "--plugin=first_of_two", "--plugin=second_of_two"),
        ("tokenizer", "train", "--plugin=first_of_two", "--help", "--plugin", "second_of_two"),
    ],
)
def test_plugins_are_imported_in_order_wherever_they_are_named(argv, folder):
    done = bertkit(*argv, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("first\nsecond\nusage: bertkit")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere", "no module 'nowhere'"),
        ("nowhere.inside", "no module 'nowhere'"),
        ("first_of_two.inside", "no module 'first_of_two.inside'"),
        ("misspelt", "nowhere_to_be_found"),
        ("broken", "ZeroDivisionError"),
        ("garbled", "garbled.py, line 1"),
        ("leaving", "SystemExit"),
        ("first_of_two.py/", "first_of_two.py/"),
        ("", "''"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_in_one_line(name, reason, folder):
    done = bertkit("evaluate", "--plugin", name, cwd=folder)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "--plugin" in done.stderr
    assert reason in done.stderr


def test_where_it_broke_is_shown_on_request(folder):
    done = bertkit("evaluate", "--plugin", "broken", cwd=folder, BERTKIT_TRACEBACK="1")
    assert "broken.py" in done.stderr
    assert "line 2" in done.stderr


def test_a_file_of_the_current_folder_stands_in_for_nothing_that_is_installed(folder):
    done = bertkit("--plugin", "first_of_two", "--plugin", "json", "--version", cwd=folder)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "first")
    assert "never" not in done.stdout


@pytest.mark.parametrize("argv", [("--help",), *((verb, "--help") for verb in VERBS)])
def test_help_tells_of_it(argv, folder):
    assert "--plugin MODULE" in bertkit(*argv, cwd=folder).stdout


@pytest.mark.parametrize("recipe", [{"plugin": "first_of_two"}, {"run": {"plugin": "first_of_two"}}])
@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_a_recipe_cannot_name_one(verb, recipe, folder):
    base, data = {"pretrain": ("bert-mini", "data.corpus=json.py"), "finetune": ("ner", "data.train=a.conll")}[verb]
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"base": base, **recipe}))
    done = bertkit(verb, "recipe.yaml", data, "--print-config", cwd=folder)
    assert done.returncode == 2
    assert "plugin" in done.stderr
    assert "first" not in done.stdout


def test_a_process_of_a_bench_imports_the_same_plugins(folder, monkeypatch):
    from bertkit import plugins
    from bertkit.bench.measure import apart

    (folder / "measured.py").write_text("import sys\nprint(sorted({'first_of_two'} & {*sys.modules}), sys.argv[1:])\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(plugins, "IMPORTED", ["first_of_two"])
    monkeypatch.setattr("bertkit.bench.measure.IMPORTED", plugins.IMPORTED)
    assert apart("measured", "size", "") == "['first_of_two'] ['size', '']"
