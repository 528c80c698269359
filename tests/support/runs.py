"""A small pretraining run, and ways to start it as processes of its own, to watch it and to compare how it ended.

A process is forked from a server that has imported everything already: it is as real and as mortal as one of
`python -m bertkit`, and starts in a tenth of the time.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from machine import free_port

from bertkit.run.checkpoint import checkpoints

STEPS, EVERY = 60, 5
SMALL = [
    "data.seq_len=16",
    "data.validation_share=0.1",
    "tokenizer.vocab_size=160",
    "model.hidden_size=64",
    "model.num_hidden_layers=2",
    "model.num_attention_heads=2",
    "model.intermediate_size=128",
    "model.hidden_dropout_prob=0.1",
    "model.attention_probs_dropout_prob=0.1",
    "train.global_batch=8",
    "train.micro_batch=4",
    "optim.lr=0.003",
    f"run.save_every={EVERY}",
    "run.log_every=1",
    "run.num_workers=0",
    "eval.every=0",
    "eval.max_rows=20",
]
ROOT = Path(__file__).parent.parent.parent


class Home(NamedTuple):
    """Where the text lies that all runs are trained on, and what was made of it."""

    corpus: Path
    cache: Path

    def argv(self, folder: Path, *changes: str) -> list[str]:
        places = [f"data.corpus={self.corpus}", f"data.cache_dir={self.cache}", f"run.dir={folder}"]
        budget = [] if any(change.startswith("train.steps") for change in changes) else [f"train.steps={STEPS}"]
        return ["pretrain", "bert-mini", *places, *SMALL, *budget, *changes]

    def start(self, folder: Path, *changes: str, ranks: int = 1, before: Callable[[], None] | None = None) -> "Run":
        """Processes that train in the folder; each calls `before` first."""
        log = folder.with_name(f"{folder.name}.log")
        return start(self.argv(folder, *changes), ranks=ranks, before=before, log=log)

    def finish(self, folder: Path, *changes: str, ranks: int = 1) -> "Run":
        """Train to the end."""
        run = self.start(folder, *changes, ranks=ranks)
        assert run.wait() == [0] * ranks, run.said()
        return run


class Run:
    """Started processes and what they said."""

    patience = 240.0
    """Seconds after which a test no longer waits for what never happens."""

    def __init__(self, ranks: list[BaseProcess], log: Path):
        self.ranks, self._log, self._begun = ranks, log, log.stat().st_size

    def wait(self, seconds: float | None = None) -> list[int | None]:
        """The exit code of each rank: negative where a signal ended it, None where it still runs."""
        deadline = time.monotonic() + (self.patience if seconds is None else seconds)
        for rank in self.ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        return [rank.exitcode for rank in self.ranks]

    def signal(self, number: int, *ranks: int) -> None:
        for rank in ranks or range(len(self.ranks)):
            os.kill(self.ranks[rank].pid or 0, number)

    def signal_groups(self, number: int) -> None:
        """Signal every process of the run, loader workers too, as a scheduler does it."""
        for rank in self.ranks:
            os.killpg(rank.pid or 0, number)

    def workers(self) -> list[int]:
        """The processes that the ranks have started."""
        groups = {rank.pid for rank in self.ranks}
        return [pid for pid, group in _living() if group in groups and pid not in groups]

    def kill(self, *ranks: int) -> None:
        for rank in ranks or range(len(self.ranks)):
            self.ranks[rank].kill()
        for rank in ranks or range(len(self.ranks)):
            self.ranks[rank].join(60)

    def alive(self) -> bool:
        return any(rank.exitcode is None for rank in self.ranks)

    def orphans(self, seconds: float = 20) -> bool:
        """Whether anything that a rank started stays. A loader worker looks for its parent every five seconds."""
        deadline = time.monotonic() + seconds
        while {group for _, group in _living()} & {rank.pid for rank in self.ranks}:
            if time.monotonic() > deadline:
                return True
            time.sleep(0.05)
        return False

    def said(self) -> str:
        return self._log.read_bytes()[self._begun :].decode(errors="replace")


def start(
    argv: list[str],
    *,
    log: Path,
    ranks: int = 1,
    before: Callable[[], None] | None = None,
    last: tuple[str, ...] = (),
) -> Run:
    """Start `bertkit ARGV` as one process or several that find each other over the loopback interface; the last of
    them has further arguments."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    started = []
    for rank, environment in enumerate(_environments(ranks)):
        words = [*argv, *last] if rank + 1 == ranks else argv
        process = _server().Process(target=_live, args=(words, environment, str(log), before), daemon=True)
        process.start()
        started.append(process)
    return Run(started, log)


def launch(argv: list[str], *, ranks: int, log: Path, environment: Mapping[str, str]) -> Run:
    """Start `torchrun -m bertkit ARGV`. The launcher is forked as well; its ranks are processes that import anew."""
    log.touch()
    words = ["--nproc-per-node", str(ranks), "--master-port", str(free_port()), "-m", "bertkit", *argv]
    process = _server().Process(target=_launch, args=(words, environment, str(log)), daemon=True)
    process.start()
    return Run([process], log)


def run_code(code: str, folder: Path, ranks: int = 1, seconds: float = 240) -> list[str]:
    """Run Python code in the folder, as `python -c` would had it imported everything; what each rank printed, to
    standard error too."""
    logs = [folder / f"printed-{rank}.txt" for rank in range(ranks)]
    started = []
    for log, environment in zip(logs, _environments(ranks), strict=True):
        log.write_bytes(b"")
        process = _server().Process(target=_execute, args=(code, str(folder), environment, str(log)), daemon=True)
        process.start()
        started.append(process)
    for process in started:
        process.join(seconds)
    printed = [log.read_text() for log in logs]
    assert [process.exitcode for process in started] == [0] * ranks, printed
    return printed


def _execute(code: str, folder: str, environment: Mapping[str, str], log: str) -> None:
    os.environ.update(environment)
    os.chdir(folder)
    _print_to(log)
    exec(code, {"__name__": "__main__"})


def _print_to(log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _environments(ranks: int) -> list[dict[str, str]]:
    """What each of several ranks must know to find the others."""
    if ranks == 1:
        return [{}]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    shared |= {"GLOO_SOCKET_IFNAME": "lo", "LOCAL_WORLD_SIZE": str(ranks)}
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def _server() -> multiprocessing.context.BaseContext:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    os.environ["OMP_NUM_THREADS"] = "1"
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["warm"])
    return server


def _live(argv: list[str], environment: Mapping[str, str], log: str, before: Callable[[], None] | None) -> None:
    """The life of a started process."""
    _become_a_command(environment, log)
    from bertkit.cli import main

    if before is not None:
        before()
    sys.exit(main(argv))


def _launch(words: list[str], environment: Mapping[str, str], log: str) -> None:
    _become_a_command(environment, log)
    from torch.distributed.run import main

    main(words)


def _become_a_command(environment: Mapping[str, str], log: str) -> None:
    """Be in a group of its own with whatever it starts, as a shell starts a command."""
    os.setpgid(0, 0)
    # Whatever started the tests may ignore them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.update(environment)
    # A rank may start workers of its own, and in the way that a process of the command line does.
    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    _print_to(log)


def _living() -> list[tuple[int, int]]:
    """Every process that runs, and its group. One that ended, and that nobody asked how, does not run: where the first
    process of a container adopts orphans and never does, they keep their numbers."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
            if state not in "ZX":
                found.append((int(stat.parent.name), int(group)))
    return found


def final_state(folder: Path, steps: int = STEPS) -> dict[str, str]:
    """The sha256 of the final weights and moments, of the files themselves."""
    step, path = checkpoints(folder / "checkpoints")[-1]
    assert step == steps
    return {
        name: hashlib.sha256((path / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "optimizer.safetensors")
    }


def kill_before_step(step: int) -> None:
    """Let this process be killed when it is about to compute a step."""
    from bertkit.run import loop

    real = loop.train_step

    def train_step(*arguments, **options):
        if options["step"] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    loop.train_step = train_step


def poison_steps(what: str, steps: tuple[int, ...]) -> None:
    """The last micro-batch of these steps has a loss, or one number of a gradient, that is not finite."""
    from bertkit.model import MaskedLM
    from bertkit.run import loop

    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    real_step, real_loss = loop.train_step, MaskedLM.loss
    now, losses = -1, 0

    def train_step(*arguments, **options):
        nonlocal now, losses
        now, losses = options["step"], 0
        return real_step(*arguments, **options)

    def loss(self, batch):
        nonlocal losses
        losses += 1
        value = real_loss(self, batch)
        if now not in steps or rank != ranks - 1 or losses * ranks != 2:
            return value
        if what == "loss":
            return value * float("nan")
        value.register_hook(lambda gradient: gradient * float("inf"))
        return value

    loop.train_step, MaskedLM.loss = train_step, loss


def dawdle() -> None:
    """Let every step take a while, so that what a test saw of a run is still true when it acts."""
    from bertkit.run import loop

    real = loop.train_step

    def train_step(*arguments, **options):
        time.sleep(0.1)
        return real(*arguments, **options)

    loop.train_step = train_step


def newest(folder: Path) -> int:
    """The step of the newest checkpoint; 0 where there is none."""
    found = checkpoints(folder / "checkpoints")
    return found[-1][0] if found else 0


def reached(folder: Path) -> int:
    """The last step that was written down; 0 before the first."""
    try:
        lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return 0
    steps = [json.loads(line)["step"] for line in lines if line.endswith(b"\n")]
    return max(steps, default=0)


def wait_until(condition: Callable[[], bool], run: Run) -> None:
    """Wait for a run to get somewhere; it must not end before."""
    deadline = time.monotonic() + run.patience
    while not condition():
        assert run.alive(), run.said()
        assert time.monotonic() < deadline, run.said()
        time.sleep(0.005)
