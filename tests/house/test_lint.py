"""What a user keeps in the checkout does not change what the linter says of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
RUFF = shutil.which("ruff", path=Path(sys.executable).parent)


@pytest.mark.skipif(RUFF is None, reason="ruff is not installed")
def test_folders_of_runs_and_data_change_nothing(tmp_path):
    for name in ("bertkit", "data_pipelines", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module in ["data", *(path.stem for path in (ROOT / "tests/support").glob("*.py"))]:
        (tmp_path / module).mkdir()
        (tmp_path / module / "theirs.py").write_text("import os;x=[ 1 ]\n")
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([RUFF, *command, "--no-cache", "."], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
