"""A job for every engine, and a stand-in for Slurm."""

import os
import stat

import pytest

from bertkit.cli import main

SBATCH = """#!/bin/bash
# Stands in for Slurm: runs the jobs of an array one after the other; the first job that it ever runs is lost.
for word in "$@"; do case "$word" in --array=*) array="${word#--array=}";; --*) ;; *) script="$word";; esac; done
echo "$array" >> "$SUBMITTED"
echo "Submitted batch job $$"
for task in ${array//,/ }; do
  if [ ! -e "$SUBMITTED.lost" ]; then touch "$SUBMITTED.lost"; continue; fi
  SLURM_ARRAY_TASK_ID=$task bash "$script"
done
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A stand-in for Slurm on the path; the file of what was submitted."""
    command = tmp_path / "bin" / "sbatch"
    command.parent.mkdir()
    command.write_text(SBATCH)
    command.chmod(command.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SUBMITTED", str(tmp_path / "submitted"))
    return tmp_path / "submitted"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A corpus, its tokenizer, and the rows of two parts made by hand."""
    folder = tmp_path_factory.mktemp("home")
    words = [f"w{number % 97}{'ab' * (number % 3)}" for number in range(4000)]
    (folder / "my.txt").write_text("\n\n".join(" ".join(words[at : at + 20]) for at in range(0, 4000, 20)))
    corpus = ["--corpus", str(folder / "my.txt")]
    assert main(["tokenizer", "train", *corpus, "--out", str(folder / "t"), "--vocab-size", "150"]) == 0
    given = [*corpus, "--tokenizer", str(folder / "t"), "--seq-len", "16"]
    for part in ("1/2", "2/2"):
        assert main(["prepare", *given, "--out", str(folder / "rows"), "--part", part]) == 0
    assert main(["prepare", "--merge", str(folder / "rows")]) == 0
    return folder, given
