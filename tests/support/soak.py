"""Pretraining for as long as you like, under torchrun with one process or two, killed and stopped at random.

`make soak MINUTES=60`. Rounds follow each other until the time is over; each is a run that is disturbed again and
again and must end in the bits of one that nothing disturbed. Memory and open files of the training processes are
looked at all the while: they must not grow from the first round to the last.
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

from grammar import write_corpus
from machine import free_port
from runs import EVERY, ROOT, Home, final_state, newest, reached

STEPS = 400
"""Long enough that a process that grows would be seen to grow."""
CHANGES = (f"train.steps={STEPS}", "run.num_workers=1", "run.log_every=5", f"run.save_every={4 * EVERY}")


class Look(NamedTuple):
    """A training process at one moment."""

    round: int
    megabytes: float
    files: int
    step: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        return soak(Path(place), arguments.minutes, random.Random(arguments.seed))


def soak(place: Path, minutes: float, rng: random.Random) -> int:
    begin = time.monotonic()
    home = Home(write_corpus(place / "text.txt", count=100), place / "cache")
    launch(home, place / "undisturbed", 1).wait()
    expected = final_state(place / "undisturbed", STEPS)
    say(f"undisturbed: {STEPS} steps in {time.monotonic() - begin:.0f} s")
    ends: Counter[str] = Counter()
    looks: list[Look] = []
    lost: list[int] = []
    different = rounds = 0
    begin = time.monotonic()
    while rounds == 0 or time.monotonic() - begin < 60 * minutes:
        folder = place / f"round-{rounds}"
        while not (folder / "export").exists():
            ends[disturb(home, folder, rounds, rng, looks, lost)] += 1
        same = final_state(folder, STEPS) == expected
        different += not same
        rounds += 1
        say(
            f"round {rounds}: {'identical' if same else 'DIFFERENT'}; {sum(ends.values())} starts so far, "
            f"{(time.monotonic() - begin) / 60:.1f} min"
        )
        shutil.rmtree(folder)
    flat = summarise(rounds, different, ends, looks, lost, (time.monotonic() - begin) / 60)
    return 1 if different or not flat else 0


def disturb(home: Home, folder: Path, number: int, rng: random.Random, looks: list[Look], lost: list[int]) -> str:
    """Start with one process or two, let it be for a while, end it somehow; say how."""
    ranks = rng.choice((1, 2))
    how = rng.choice(("kill all", "kill one", "SIGTERM", "SIGINT", "finish"))
    begun = newest(folder)
    goal = begun + rng.randrange(1, STEPS // 2)
    process = launch(home, folder, ranks)
    while process.poll() is None and (how == "finish" or reached(folder) < goal):
        time.sleep(0.25)
        step = reached(folder)
        if step > begun + 6 * EVERY:  # steps up to one interval may have been written down by the process before
            for rank in training_processes(process.pid):
                looks.extend(look(rank, number, step))
    if process.poll() is None:
        found = training_processes(process.pid)
        if how == "kill all":
            # Each rank leads a group of its own: it and its loader workers.
            for leader in (process.pid, *found):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(leader, signal.SIGKILL)
        elif how == "kill one" and found:
            os.kill(rng.choice(found), signal.SIGKILL)
        else:
            os.killpg(process.pid, signal.SIGINT if how == "SIGINT" else signal.SIGTERM)
    elif how != "finish":
        how = "finish"
    code = process.wait(timeout=1800)
    if how == "finish":
        assert code == 0, (folder.parent / "log").read_text()[-4000:]
    else:
        lost.append(max(0, reached(folder) - newest(folder)))
    return f"{how}, {ranks} process{'es' * (ranks > 1)}"


def launch(home: Home, folder: Path, ranks: int) -> subprocess.Popen:
    """`torchrun`, in a group of its own."""
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", f"--master_port={free_port()}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with open(home.corpus.parent / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, *launcher, "-m", "bertkit", *home.argv(folder, *CHANGES)],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def training_processes(launcher: int) -> list[int]:
    """The ranks that a launcher started; not their loader workers."""
    try:
        return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]
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


def summarise(
    rounds: int, different: int, ends: Counter[str], looks: list[Look], lost: list[int], minutes: float
) -> bool:
    """Say what was seen; whether memory and files stayed as they were."""
    say("")
    say(f"soak of {minutes:.1f} minutes: {rounds} runs of {STEPS} steps, {sum(ends.values())} starts")
    for how, count in sorted(ends.items()):
        say(f"  ended by {how}: {count}")
    say(f"  final weights and optimizer state identical to the undisturbed run: {rounds - different} of {rounds}")
    say(f"  most steps lost at once: {max(lost, default=0)} (a checkpoint every {4 * EVERY})")
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
