"""The text that all runs train on, and the run that nothing disturbed; made once in a session."""

import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
from grammar import write_corpus
from runs import EVERY, Home, Run, final_state, kill_before_step, newest


@pytest.fixture(scope="session", autouse=True)
def patience(request: pytest.FixtureRequest) -> None:
    """A test that waits in vain says so before its own time is up."""
    Run.patience = 0.8 * float(request.config.getini("timeout"))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("home")
    return Home(write_corpus(folder / "text.txt", count=100), folder / "cache")


@pytest.fixture(scope="session")
def undisturbed(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    home.finish(folder)
    return folder


@pytest.fixture(scope="session")
def expected(undisturbed: Path) -> dict[str, str]:
    """The final weights and moments of the run that nothing disturbed."""
    return final_state(undisturbed)


@pytest.fixture(scope="session")
def killed(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run killed between its second checkpoint and its third: the save to come writes, renames and prunes."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    run = home.start(folder, before=partial(kill_before_step, 2 * EVERY + 1))
    assert run.wait() == [-signal.SIGKILL], run.said()
    assert newest(folder) == 2 * EVERY
    return folder


@pytest.fixture
def at_step_10(killed: Path, tmp_path: Path) -> Path:
    """A copy of it to resume."""
    return shutil.copytree(killed, tmp_path / "run")
