"""What each target of the Makefile would do on a fresh machine, as `make -n` tells it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FLAGS = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")


@pytest.fixture
def checkout(tmp_path):
    """The files that make looks at, without an environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def installs(checkout: Path, target: str) -> list[str]:
    # A make that runs the tests hands its own flags down.
    environment = {name: value for name, value in os.environ.items() if name not in FLAGS}
    command = ["make", "--dry-run", "--directory", str(checkout), target]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if "pip install" in line]
    assert all("-c constraints.txt" in line for line in lines)
    return [line.rpartition(" -e ")[2].strip("'") for line in lines]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("demo", ["."]),
        *((target, [".", ".[dev,track,zh]"]) for target in ("test", "lint", "bench", "test-faults", "soak")),
    ],
)
def test_a_fresh_machine_gets_what_the_target_needs(checkout, target, expected):
    assert installs(checkout, target) == expected


def test_what_is_installed_is_not_installed_again_until_the_pins_change(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".bare").touch()
    assert installs(checkout, "demo") == []
    assert installs(checkout, "test") == [".[dev,track,zh]"]
    (checkout / ".venv" / ".ready").touch()
    assert installs(checkout, "test") == []
    os.utime(checkout / ".venv" / ".bare", (1, 1))
    assert installs(checkout, "demo") == ["."]
    assert installs(checkout, "test") == [".", ".[dev,track,zh]"]
