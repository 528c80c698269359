"""Pretraining for as long as you like, under torchrun with one process or two, disturbed at random.

`make soak MINUTES=60`. Rounds follow each other until the time is over; each is a run that is started again and again
until it is finished, and must end in the bits of one that nothing disturbed. A start is ended by a kill of everything,
of one rank or of a loader worker, by a signal to the launcher or to every process, or by its last step. Some starts
must be refused: something of the cache is damaged, or the last rank was started with another recipe. Memory and open
files of the training processes are looked at all the while: they must not grow from the first round to the last.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from damaging import DAMAGES, damage
from grammar import write_corpus
from machine import MARK, free_port, marked
from runs import EVERY, ROOT, Home, final_state, newest, reached

STEPS = 400
"""Long enough that a process that grows would be seen to grow."""
CHANGES = (f"train.steps={STEPS}", "run.num_workers=1", "run.log_every=5", f"run.save_every={4 * EVERY}")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ENDS = ("kill all", "kill one rank", "kill a worker", *(f"{number.name} to {whom}" for number in SIGNALS for whom in
        ("the launcher", "every process")), "the last step", "the last step")  # fmt: skip
DIFFERENT = ("run.seed=1", "optim.lr=0.004", "mask.rate=0.2", "train.clip_norm=0.5", "eval.every=7")
REFUSED = ("rows/*/*-00000.*", "tokenizers/*/tokenizer*.json")
"""What of the cache is refused where it is damaged."""
REPAIRED = ("texts/*.json",)
"""And what is found out again."""


class Look(NamedTuple):
    """A training process at one moment."""

    round: int
    megabytes: float
    files: int
    step: int


class Soak:
    """What was seen so far."""

    def __init__(self, place: Path, rng: random.Random):
        self.place, self.rng = place, rng
        self.home = Home(write_corpus(place / "text.txt", count=100), place / "cache")
        self.ends: Counter[str] = Counter()
        self.looks: list[Look] = []
        self.lost: list[int] = []
        self.wrong: list[str] = []
        self.rounds = 0

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            say(f"WRONG: {what}\n{(self.place / 'log').read_text()[-4000:]}")
            self.wrong.append(what)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        return run_soak(Soak(Path(place), random.Random(arguments.seed)), arguments.minutes)


def run_soak(soak: Soak, minutes: float) -> int:
    begin = time.monotonic()
    launch(soak.home, soak.place / "undisturbed", 1).wait()
    expected = final_state(soak.place / "undisturbed", STEPS)
    say(f"undisturbed: {STEPS} steps in {time.monotonic() - begin:.0f} s")
    begin = time.monotonic()
    while soak.rounds == 0 or time.monotonic() - begin < 60 * minutes:
        folder = soak.place / f"round-{soak.rounds}"
        while not (folder / "export").exists():
            how = soak.rng.choice((disturb, disturb, disturb, disturb, with_damage, with_disagreement))
            soak.ends[how(soak, folder)] += 1
        soak.check(final_state(folder, STEPS) == expected, f"round {soak.rounds} ended in other bits")
        soak.rounds += 1
        say(f"round {soak.rounds}: {sum(soak.ends.values())} starts so far, {(time.monotonic() - begin) / 60:.1f} min")
        shutil.rmtree(folder)
    flat = summarise(soak, (time.monotonic() - begin) / 60)
    return 1 if soak.wrong or not flat else 0


def disturb(soak: Soak, folder: Path) -> str:
    """Start with one process or two, let it be for a while, end it somehow; say how."""
    rng = soak.rng
    ranks, how, begun = rng.choice((1, 2)), rng.choice(ENDS), newest(folder)
    goal = STEPS + 1 if how == "the last step" else begun + rng.randrange(1, STEPS // 2)
    process = launch(soak.home, folder, ranks)
    while process.poll() is None and reached(folder) < goal:
        time.sleep(0.25)
        step = reached(folder)
        if step > begun + 6 * EVERY:  # steps up to one interval may have been written down by the process before
            for rank in children(process.pid):
                soak.looks.extend(look(rank, soak.rounds, step))
    if process.poll() is None:
        end(process, how, rng)
    else:
        how = "the last step"
    code = process.wait(timeout=1800)
    if how == "the last step":
        soak.check(code == 0, f"a start that nothing disturbed ended with {code}")
    else:
        soak.lost.append(max(0, reached(folder) - newest(folder)))
        soak.check(soak.lost[-1] <= 4 * EVERY, f"{soak.lost[-1]} steps were lost after {how}")
    check_ended(soak, how)
    return f"{how}, {ranks} process{'es' * (ranks > 1)}"


def end(process: subprocess.Popen, how: str, rng: random.Random) -> None:
    """Kill or signal a launcher and what it started. Each rank leads a group of its own: it and its loader workers."""
    ranks = children(process.pid)
    workers = [worker for rank in ranks for worker in children(rank)]
    whom: list[int] = {"kill one rank": ranks, "kill a worker": workers}.get(how, [])
    number = signal.SIGKILL if how.startswith("kill") else getattr(signal, how.split()[0])
    with contextlib.suppress(ProcessLookupError):
        if whom:
            os.kill(rng.choice(whom), number)
        elif how.endswith("the launcher"):
            os.kill(process.pid, number)
        else:
            for leader in (process.pid, *ranks):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(leader, number)


def with_damage(soak: Soak, folder: Path) -> str:
    """Start with something of the cache damaged, and put it back."""
    rng, cache = soak.rng, soak.home.cache
    repaired = rng.random() < 0.2
    paths = [path for pattern in (REPAIRED if repaired else REFUSED) for path in sorted(cache.glob(pattern))]
    path, how = rng.choice(paths), rng.choice(DAMAGES[:4])
    data, begun = path.read_bytes(), newest(folder)
    damage(path, how, rng)
    what = f"{path.relative_to(cache)} ({how})"
    if repaired:
        ended = disturb(soak, folder)
        return f"{ended}, a note of the text damaged"
    refuse(soak, folder, rng.choice((1, 2)), path.name, what)
    path.write_bytes(data)
    soak.check(newest(folder) == begun, f"trained on {what}")
    return "refused: the cache was damaged"


def with_disagreement(soak: Soak, folder: Path) -> str:
    """Start the last of two ranks with another recipe."""
    other, begun = soak.rng.choice(DIFFERENT), newest(folder)
    # A rank that resumes may see for itself that the run is of another recipe; either way the key is named.
    refuse(soak, folder, 2, other.partition("=")[0], f"ranks that differ in {other}", last=other)
    soak.check(newest(folder) == begun, f"trained with {other} on one rank")
    return "refused: the ranks disagreed"


def refuse(soak: Soak, folder: Path, ranks: int, told: str, what: str, last: str = "") -> None:
    """A start that must end by itself, before any step, with a message."""
    log = soak.place / "log"
    before, size = reached(folder), log.stat().st_size
    process = launch(soak.home, folder, ranks, last)
    code = process.wait(timeout=1800)
    soak.check(code != 0, f"accepted: {what}")
    soak.check(told.encode() in log.read_bytes()[size:], f"not named: {what}")
    soak.check(reached(folder) <= before, f"trained on: {what}")
    check_ended(soak, what)


def check_ended(soak: Soak, what: str) -> None:
    deadline = time.monotonic() + 60
    while (left := marked(str(soak.place))) and time.monotonic() < deadline:
        time.sleep(0.25)
    soak.check(not left, f"processes lived on after {what}")


def launch(home: Home, folder: Path, ranks: int, last: str = "") -> subprocess.Popen:
    """`torchrun`, in a group of its own; the last rank may have a further argument."""
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", f"--master_port={free_port()}"]
    command = ["-m", "bertkit", *home.argv(folder, *CHANGES)]
    if last:
        script = f'[ $RANK = {ranks - 1} ] && set -- "$@" {last}; exec "$0" "$@"'
        command = ["--no-python", "sh", "-c", script, sys.executable, *command]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with open(home.corpus.parent / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, *launcher, *command],
            env=environment | {MARK: str(home.corpus.parent)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def children(pid: int) -> list[int]:
    """Of a launcher its ranks, of a rank its loader workers."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def look(pid: int, number: int, step: int) -> list[Look]:
    """Memory and open files of a process; nothing if it is gone."""
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        megabytes = int(fields["VmRSS"].split()[0]) / 1024
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except (OSError, KeyError, ValueError):
        return []
    return [Look(number, megabytes, files, step)]


def summarise(soak: Soak, minutes: float) -> bool:
    """Say what was seen; whether memory and files stayed as they were."""
    rounds, ends, looks = soak.rounds, soak.ends, soak.looks
    say("")
    say(f"soak of {minutes:.1f} minutes: {rounds} runs of {STEPS} steps, {sum(ends.values())} starts")
    for how, count in sorted(ends.items()):
        say(f"  ended by {how}: {count}")
    different = sum("other bits" in what for what in soak.wrong)
    say(f"  final weights and optimizer state identical to the undisturbed run: {rounds - different} of {rounds}")
    say(f"  anything else that was wrong: {[what for what in soak.wrong if 'other bits' not in what] or 'nothing'}")
    say(f"  most steps lost at once: {max(soak.lost, default=0)} (a checkpoint every {4 * EVERY})")
    third = max(1, rounds // 3)
    first = [look for look in looks if look.round < third]
    last = [look for look in looks if look.round >= rounds - third]
    flat = True
    for name, unit in (("megabytes", "MB"), ("files", "open files")):
        early, late = (statistics.median(getattr(look, name) for look in part) for part in (first, last))
        most = max(getattr(look, name) for look in looks)
        flat &= late <= 1.05 * early + 2
        say(f"  a training process: {early:.0f} {unit} in the first third, {late:.0f} in the last, {most:.0f} at most")
    early, late = (
        statistics.median(look.megabytes for look in looks if low <= look.step / STEPS < high) if looks else 0
        for low, high in ((0, 0.34), (0.66, 1.1))
    )
    flat &= late <= 1.05 * early + 5
    say(f"  within a run: {early:.0f} MB in the first third of its steps, {late:.0f} MB in the last")
    say(f"  memory and open files {'flat' if flat else 'GROW'}")
    return flat


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
