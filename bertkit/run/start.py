"""What every run does before its first step: lock the folder, write the recipe, wait for the ranks, connect.

    with start_run(folder, recipe) as run:
        ...  # prepare the data, on each rank by itself
        run.connect(recipe.train.precision, recipe.run.trackers)
        ...  # build or resume the model; so far a signal ends the process, and nothing is lost
        run.begin_steps()
        ...  # train; signals only set a flag now
        run.steps_done()
        ...  # score and export; a signal ends the process again

Preparation may take hours, for which no collective operation would wait; so the ranks are connected after it.
"""

import contextlib
import hashlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from bertkit.config.recipe import flat_values
from bertkit.cpu import make_ready
from bertkit.events import event
from bertkit.run.folder import LOCK, read_facts, write_recipe
from bertkit.run.heartbeat import RankHeartbeat
from bertkit.run.lock import locked
from bertkit.run.mirror import Mirror, restore
from bertkit.run.ranks import agree_on, rounding_facts, start_accelerator
from bertkit.run.signals import StopSignals
from data_pipelines import durable

OF_EACH_RANK = {
    *("run.dir", "run.num_workers", "run.log_every", "run.trackers"),
    *("data.corpus", "data.prepared", "data.cache_dir", "data.train", "data.dev", "data.test"),
    *("model.init", "model.old_domain", "tokenizer.path"),
}
"""Paths, and how a rank reads and logs, may differ by rank; the content of data and models is compared by facts."""
_FACTS = {
    "corpus": "data.corpus",
    "labeled": "data.train",
    "rows": "the prepared rows",
    "init": "model.init",
    "old_domain": "model.old_domain",
}


class Run:
    """A run that was started, as one of its ranks sees it."""

    accelerator: Accelerator
    """Known once the run is connected."""

    def __init__(self, folder: Path, mirror: Mirror, heartbeat: RankHeartbeat, until_exit: contextlib.ExitStack):
        self.folder, self.mirror, self.is_first = folder, mirror, _is_first()
        self._signals, self._heartbeat, self._until_exit = StopSignals(), heartbeat, until_exit
        self._warned = False

    def connect(self, precision: str, trackers: list[str]) -> Accelerator:
        """Connect the ranks."""
        self._until_exit.callback(self._signals.release)
        self.accelerator = start_accelerator(self.folder, precision, trackers)
        self._until_exit.callback(self.accelerator.end_training)
        self._heartbeat.connected()
        return self.accelerator

    def begin_steps(self) -> None:
        """From here on a signal asks to stop after the step that it comes in."""
        self._warn_of_rounding()
        self._signals.catch()

    def steps_done(self) -> None:
        """All steps are done and saved: from here on a signal ends the process, as does one that has already come."""
        self._signals.release()
        if self._signals.number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signals.number:
            signal.raise_signal(self._signals.number)

    def asked_to_stop(self) -> bool:
        return bool(self._signals.number)

    @property
    def exit_code(self) -> int:
        """Of a run that was asked to stop."""
        return self._signals.exit_code

    def say(self, text: str, name: str = "", /, **facts: Any) -> None:
        """Tell people, and where it has a name a supervisor, once and not from every rank."""
        if self.is_first:
            print(text, file=sys.stderr, flush=True)
            if name:
                event(name, **facts)

    def _warn_of_rounding(self) -> None:
        """Weights differ from those of an undisturbed run where a resume rounds differently; said once."""
        if self._warned:
            return
        self._warned = True
        now = rounding_facts(self.accelerator)
        before = {**now, **(read_facts(self.folder) or {})}
        if before["precision"] != now["precision"]:
            self._warn(
                f"{self.folder} began in {before['precision']} and resumes in {now['precision']}, which "
                f"train.precision=auto takes on {self.accelerator.device.type}, so its weights will differ"
            )
        elif before["threads"] != now["threads"] and self.accelerator.device.type == "cpu":
            self._warn(
                f"{self.folder} began with {before['threads']} threads and resumes with {now['threads']}, so its "
                f"weights may differ in the last bits; OMP_NUM_THREADS={before['threads']} keeps them"
            )

    def _warn(self, text: str) -> None:
        self.say(f"warning: {text}", "warning", text=text)


@contextlib.contextmanager
def start_run(folder: Path, recipe: Any) -> Iterator[Run]:
    """Own the folder for as long as the context lasts; the recipe in it is that of the newest start."""
    make_ready()
    with contextlib.ExitStack() as until_exit:
        until_exit.enter_context(_deterministic(recipe.run.deterministic))
        mirror = Mirror(folder, None, keep=recipe.run.keep)
        if _is_first():
            until_exit.enter_context(locked(folder / LOCK))
            mirror = _open_mirror(folder, recipe)
            write_recipe(folder, recipe)
        heartbeat = until_exit.enter_context(RankHeartbeat())
        try:
            yield Run(folder, mirror, heartbeat, until_exit)
        except RuntimeError as error:
            raise _lost(error) or error from None


def check_same_start(accelerator: Accelerator, recipe: Any, facts: Callable[[], dict[str, Any]]) -> None:
    """Refuse ranks that were started with another recipe, other data or other code than the first, on every rank."""
    if accelerator.num_processes == 1:
        return
    mine = {key: value for key, value in flat_values(recipe).items() if key not in OF_EACH_RANK}
    mine |= {_FACTS.get(key, key): value for key, value in facts().items()} | {"the code": _code_version()}
    mine["the precision"] = rounding_facts(accelerator)["precision"]  # which auto takes from the device of each rank
    first = agree_on(accelerator, mine)
    differences = [
        f"{key} is {_short(first.get(key))} on rank 0 and {_short(mine.get(key))} on rank {accelerator.process_index}"
        for key in {**first, **mine}
        if first.get(key) != mine.get(key)
    ]
    num_different = torch.tensor([len(differences)])
    torch.distributed.all_reduce(num_different)
    if num_different:
        told = next(filter(None, (agree_on(accelerator, differences, n) for n in range(accelerator.num_processes))))
        raise ValueError(f"{'; '.join(told)}; start all ranks with the same command, data and version")


def _code_version() -> str:
    """A hash of all our modules, and the version of torch."""
    digest = hashlib.sha256()
    for package in (Path(__file__).parent.parent, Path(durable.__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{digest.hexdigest()[:12]} with torch {torch.__version__}"


def _short(value: Any) -> str:
    return f"{value[:12]}..." if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{24,}", value) else repr(value)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _open_mirror(folder: Path, recipe: Any) -> Mirror:
    """The copy of the run on a store, if it has one, from which a newer checkpoint is fetched."""
    url = getattr(recipe.run, "mirror", None)
    mirror = Mirror(folder, url, recipe.run.keep)
    if url is not None and not recipe.run.restart:
        step = restore(folder, url, recipe)
        if step is not None:
            print(f"fetched the checkpoint of step {step} from {url}", file=sys.stderr, flush=True)
    return mirror


def _lost(error: RuntimeError) -> OSError | None:
    """Another process was killed, which torch reports at any point of the run."""
    told = str(error).partition("\n")[0]
    if "DataLoader worker" in told:
        return ChildProcessError(
            f"a loader worker died, perhaps out of memory ({told}); "
            "the same command resumes from the last checkpoint, and a smaller run.num_workers needs less"
        )
    if "gloo" in told and "by peer" in told:
        return ConnectionError("another rank was lost; see its output; the same command resumes")
    return None


@contextlib.contextmanager
def _deterministic(asked: bool) -> Iterator[None]:
    """Let torch take only algorithms that give the same bits every time, inside."""
    if not asked:
        yield
        return
    # Of cuBLAS, which reads it when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
