"""Timing by medians with their spread, shown as a table for people and as rows for programs."""

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.plugins import IMPORTED

_FILE_WIDTH = 120
JSON_KEYS = ("workload", "ours", "theirs", "ratio", "unit", "share_of_peak", "peak_memory_mb")


@dataclass(frozen=True)
class Timing:
    """Seconds for one call: the median of all rounds, with the quartiles around it, and the fastest."""

    median: float
    low: float
    high: float
    fastest: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a bench: ours and theirs in `unit` (higher is better, except for seconds), how many times better ours
    is, and what else was measured."""

    workload: str
    ours: float
    theirs: float | None = None
    ratio: float | None = None
    unit: str
    share_of_peak: float | None = None
    peak_memory_mb: float | None = None
    theirs_peak_memory_mb: float | None = None
    """Only for the notes, and the fields below only for the table: programs get the fields above."""
    spread: float | None = None
    """Half the distance between the quartiles of ours, as a share of its median."""
    input_stall: float | None = None
    """Share of the time that training waits for its input."""


Told = Row | str
"""What a bench yields: each row as soon as it is measured, and notes that say how to read them."""


def announce(work: str) -> None:
    """Say what is being measured."""
    print(f"measuring: {work}", file=sys.stderr, flush=True)


def interleaved(candidates: dict[str, Callable[[], Any]], rounds: int, repeats: int = 1) -> dict[str, Timing]:
    """Time the candidates in turn, round after round, so that a slow moment of the machine hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for function in candidates.values():
        function()
    for turn in range(rounds):
        # Every other round runs backwards, so that no candidate always follows the same other one.
        for name in list(candidates)[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            for _ in range(repeats):
                candidates[name]()
            seconds[name].append((time.perf_counter() - start) / repeats)
    return {name: _timing(values) for name, values in seconds.items()}


def compare(workload: str, amount: float, unit: str, timings: dict[str, Timing], **seen: float | None) -> Row:
    """The row for a workload of `amount` units a call, from the timings of "ours" and perhaps "theirs"."""
    ours = amount / timings["ours"].median
    theirs = amount / timings["theirs"].median if "theirs" in timings else None
    spread = (timings["ours"].high - timings["ours"].low) / 2 / timings["ours"].median
    ratio = theirs and ours / theirs
    return Row(workload=workload, ours=ours, theirs=theirs, ratio=ratio, unit=unit, spread=spread, **seen)


def tell(row: Row) -> None:
    """Say what was measured, before the table has it."""
    beside = "" if row.ratio is None else f", {row.ratio:.2f}×"
    print(f"measured:  {row.workload}: {_amount(row.ours)} {row.unit}{beside}", file=sys.stderr, flush=True)


def print_table(rows: Iterable[Row], title: str, notes: Iterable[str] = ()) -> None:
    """Show the rows to a person; empty columns are left out."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    units = {row.unit for row in rows}
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("workload", lambda row: row.workload),
        ("ours", lambda row: _amount(row.ours)),
        ("spread", lambda row: "" if row.spread is None else f"±{row.spread:.0%}"),
        ("theirs", lambda row: "" if row.theirs is None else _amount(row.theirs)),
        ("ratio", lambda row: "" if row.ratio is None else f"{row.ratio:.2f}×"),
        ("unit", lambda row: row.unit if len(units) > 1 else ""),
        ("of peak", lambda row: "" if row.share_of_peak is None else f"{row.share_of_peak:.0%}"),
        ("input", lambda row: "" if row.input_stall is None else f"{row.input_stall:.0%}"),
        ("memory", lambda row: "" if row.peak_memory_mb is None else f"{row.peak_memory_mb:,.0f} MB"),
    ]
    title = f"{title}, {rows[0].unit}" if len(units) == 1 else title
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    shown = [(name, cell) for name, cell in columns if any(cell(row) for row in rows)]
    for name, _ in shown:
        table.add_column(name, justify="left" if name in ("workload", "unit") else "right")
    for row in rows:
        table.add_row(*(cell(row) for _, cell in shown))
    console = Console()
    if not console.is_terminal:  # a file has no width, and 80 columns would break every name
        console.width = max(console.width, _FILE_WIDTH)
    if rows:
        console.print(table)
    for note in notes:
        console.print(note, highlight=False)


def most_memory() -> float:
    """Peak memory of this process, in megabytes."""
    if Path("/proc/self/status").exists():
        # getrusage would include the memory of the process that started this one.
        return _in_status("VmHWM")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


class Memory:
    """Peak of this process's own memory while it was watched, above what it held before, in megabytes."""

    def __init__(self):
        self.before = self.now()
        self.most = 0.0

    def look(self) -> None:
        self.most = max(self.most, self.now() - self.before)

    @staticmethod
    def now() -> float:
        # Pages of mapped files belong to the system, which drops them when it needs the memory.
        return _in_status("RssAnon")


@contextmanager
def watched_memory() -> Iterator[Memory]:
    """Read it a hundred times a second, from a thread beside the work."""
    memory, done = Memory(), threading.Event()

    def watch():
        while not done.wait(0.01):
            memory.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield memory
    finally:
        memory.look()
        done.set()
        thread.join()


def _in_status(field: str) -> float:
    """What Linux reports of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def apart(module: str, *arguments: str) -> str:
    """The last line that a module prints when it runs in a separate process, where nothing else takes memory."""
    plugins = [f"--plugin={name}" for name in IMPORTED]
    command = [sys.executable, "-m", "bertkit.plugins", *plugins, module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module} failed in its process:\n{done.stderr}")
    return done.stdout.splitlines()[-1]


def facts_of(row: Row) -> dict[str, Any]:
    """The row for a program."""
    return {key: getattr(row, key) for key in JSON_KEYS}


def _timing(seconds: list[float]) -> Timing:
    if len(seconds) < 4:
        return Timing(statistics.median(seconds), min(seconds), max(seconds), min(seconds))
    low, median, high = statistics.quantiles(seconds, n=4)
    return Timing(median, low, high, min(seconds))


def _amount(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2f} {letter}"
    return f"{value:.3g}"
