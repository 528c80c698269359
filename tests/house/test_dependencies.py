"""What the product imports, pyproject.toml declares; what it declares, the product imports."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
tomllib = pytest.importorskip("tomllib")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"pyyaml": "yaml"}
BEHIND_ACCELERATE = {"tensorboard"}
"""Imported by accelerate for us, where run.track names it."""
BEHIND_FSSPEC = {"s3fs", "gcsfs"}
"""Imported by fsspec for us, where a corpus is on such a store."""
FOR_TYPE_CHECKERS = {"typing_extensions"}
"""Never imported when the product runs; a type checker brings it along."""


def declared(requirements: list[str]) -> set[str]:
    names = {re.split(r"[\[<>=;~! ]", requirement)[0].lower().replace("-", "_") for requirement in requirements}
    return {IMPORTED_AS.get(name, name) for name in names}


def imported() -> set[str]:
    found = set()
    for path in (path for package in ("bertkit", "data_pipelines") for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
    return found - sys.stdlib_module_names - {"bertkit", "data_pipelines"}


def test_what_is_imported_is_declared_and_the_other_way_round():
    extras = PROJECT["optional-dependencies"]
    optional = declared(package for name, packages in extras.items() if name != "dev" for package in packages)
    behind = BEHIND_ACCELERATE | BEHIND_FSSPEC
    assert imported() - FOR_TYPE_CHECKERS | behind == declared(PROJECT["dependencies"]) | optional


def test_every_requirement_has_a_lower_bound():
    extras = (package for packages in PROJECT["optional-dependencies"].values() for package in packages)
    for requirement in (*PROJECT["dependencies"], *extras):
        assert ">=" in requirement or requirement.startswith("bertkit["), requirement


HELP = [[], ["prepare"], ["clean"], ["tokenizer", "train"], ["corpus", "report"], ["bench"]]


@pytest.mark.parametrize("verb", HELP, ids=" ".join)
def test_help_imports_nothing_heavy_and_no_extra(verb):
    shown = modules_after(f"main({[*verb, '--help']!r})")
    assert not shown & (extras() | {"numpy", "torch", "tokenizers", "fsspec", "pyarrow", "datasets", "rich"})


def test_a_corpus_is_cleaned_without_any_extra(tmp_path):
    (tmp_path / "my.txt").write_text("\n\n".join(f"text {number} " + "some more words " * 20 for number in range(9)))
    given = ["clean", "--corpus", str(tmp_path / "my.txt"), "--out", str(tmp_path / "out")]
    assert not modules_after(f"assert main({given!r}) == 0") & (extras() | {"torch", "fsspec", "datasets"})
    assert (tmp_path / "out" / "clean.json").is_file()


def test_no_extra_is_installed_with_the_base():
    assert not extras() & declared(PROJECT["dependencies"])


def extras() -> set[str]:
    """The modules of all extras that users may ask for, but for those of base packages with an extra of their own."""
    groups = PROJECT["optional-dependencies"].items()
    found = declared(
        package for name, packages in groups if name != "dev" for package in packages if "[" not in package
    )
    return found | BEHIND_FSSPEC


def modules_after(statement: str) -> set[str]:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('', *sys.modules, sep='\\n'))\n"
        f"from bertkit.cli import main\n{statement}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return {line.partition(".")[0] for line in done.stdout.splitlines()}
