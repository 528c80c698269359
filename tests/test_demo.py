"""The demo's corpus is prose from this installation, and the demo runs from end to end, twice."""

import subprocess
import sys

import pytest

from data_pipelines import demo_corpus


@pytest.fixture
def small_installation(tmp_path, monkeypatch):
    """A folder that stands for the standard library."""
    lines = [f"Return the item number {i} of the given list, or None if there is no such item." for i in range(300)]
    source = "".join(
        f'def f{i}():\n    """{line}\n\n    Args:\n        x: y\n    """\n' for i, line in enumerate(lines)
    )
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "module.py").write_text(source)
    (tmp_path / "lib" / "broken.py").write_text("def (")
    (tmp_path / "none").mkdir()
    places = {"stdlib": str(tmp_path / "lib"), "purelib": str(tmp_path / "none")}
    monkeypatch.setattr(demo_corpus.sysconfig, "get_path", places.__getitem__)
    return lines


def test_the_corpus_holds_the_prose_of_docstrings(small_installation, tmp_path):
    path = tmp_path / "corpus.txt"
    assert demo_corpus.write_demo_corpus(path) == 300
    assert path.read_text().split("\n\n")[:-1] == small_installation


def test_the_corpus_stops_at_its_size(small_installation, tmp_path):
    path = tmp_path / "corpus.txt"
    demo_corpus.write_demo_corpus(path, max_bytes=1000)
    assert 1000 <= path.stat().st_size < 1200


def test_the_demo_runs_and_runs_again(tmp_path, monkeypatch):
    sentences = [f"Return the {noun} of the {other}." for noun in ("list", "name", "value") for other in "abcdefgh"]
    (tmp_path / "corpus.txt").write_text("\n\n".join(sentences * 20))
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    command = [sys.executable, "-m", "bertkit", "demo", "--minutes", "0.02", "--dir", str(tmp_path)]
    first, second = (subprocess.run(command, capture_output=True, text=True, timeout=250) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "Let it fill masks" in first.stdout
    assert "is finished" in second.stderr
