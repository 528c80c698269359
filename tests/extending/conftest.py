"""The command line with a toy as its plugin, in a process of its own: a row that a plugin adds stays to the end."""

import multiprocessing
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from grammar import write_corpus
from runs import Home, start

TOYS = Path(__file__).parent / "toys"


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Text to pretrain on."""
    folder = tmp_path_factory.mktemp("home")
    return Home(write_corpus(folder / "text.txt", count=60), folder / "cache")


@pytest.fixture
def bertkit(tmp_path: Path) -> Callable[..., str]:
    """Runs `bertkit ARGV --plugin TOY` to its end, from the folder of toys; what it said leaves."""

    def run(
        toy: str,
        *argv: str,
        ranks: int = 1,
        workers: str = "fork",
        before: Callable[[], None] | None = None,
        exits: int = 0,
    ) -> str:
        plugin = ["--plugin", toy] if toy else []
        done = start([*argv, *plugin], log=tmp_path / "log", ranks=ranks, before=partial(_begin, workers, before))
        assert done.wait() == [exits] * ranks, done.said()
        return done.said()

    return run


def _begin(workers: str, then: Callable[[], None] | None) -> None:
    os.chdir(TOYS)
    multiprocessing.set_start_method(workers, force=True)
    if then is not None:
        then()
