"""The verb bench: name a workload, read a table of ratios; name none, read what this machine does."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bertkit.cli.answers import PRINTED, add_json, write_json

if TYPE_CHECKING:
    from bertkit.bench.measure import Told


class Workload(NamedTuple):
    measure: str
    """The function that measures it, as module:function; it yields rows and notes."""
    title: str
    options: tuple[str, ...] = ()
    """Arguments that it takes beside --against and --quick."""
    opponents: tuple[str, ...] = ("transformers",)
    """What --against may name."""


WORKLOADS = {
    "step": Workload("bertkit.bench.step:bench_step", "training step"),
    "collator": Workload("bertkit.bench.collator:bench_collator", "masking collator"),
    "prepare": Workload("bertkit.bench.prepare:bench_prepare", "corpus preparation", ("corpus",)),
    "tag": Workload("bertkit.bench.tag:bench_tag", "tagging raw text"),
    "write": Workload("bertkit.bench.write:bench_write", "rewriting texts"),
    "load": Workload("bertkit.bench.load:bench_load", "loading masked batches"),
    "race": Workload("bertkit.bench.race:bench_race", "time to a held-out loss", ("corpus",)),
    "clean": Workload("bertkit.bench.clean:bench_clean", "near copies and cleaning", ("corpus", "sizes"), ("rensa",)),
    "growth": Workload("bertkit.bench.growth:bench_growth", "how cost grows", ("sizes",)),
}
MACHINE = Workload("bertkit.bench.machine:bench_machine", "this machine, recipe by recipe", ("recipes",))
_SPECIAL = ("corpus", "sizes", *MACHINE.options)


def bench(parser: argparse.ArgumentParser):
    parser.add_argument(
        "workload",
        nargs="?",
        choices=[*WORKLOADS, "all"],
        help="what to measure; without it, what this machine does with each recipe (for GPUs: bertkit plan)",
    )
    parser.add_argument("--against", choices=["transformers", "rensa"], help="library to compare with")
    add_json(parser)
    parser.add_argument("--quick", action="store_true", help="smaller workloads and fewer rounds")
    parser.add_argument(
        "--corpus", metavar="FILE", help="prepare, clean, race: text to run on instead of generated text"
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        metavar="MB,MB",
        help="growth, clean: megabytes of text (default for growth: 10,100,1000; for clean: none)",
    )
    parser.add_argument(
        "--recipes",
        type=lambda names: names.split(","),
        metavar="NAME,NAME",
        help="without a workload: measure only these recipes",
    )
    return run_bench


def run_bench(arguments: argparse.Namespace) -> None:
    import importlib

    chosen = _chosen(arguments)
    if arguments.against:
        _check_installed(arguments.against)
    if arguments.corpus and not Path(arguments.corpus).exists():
        raise ValueError(f"--corpus: there is no file {arguments.corpus}")
    facts: dict[str, list] = {"rows": [], "notes": []}
    try:
        for workload in chosen:
            module, _, function = workload.measure.partition(":")
            options = {name: value for name in workload.options if (value := getattr(arguments, name)) is not None}
            measure = getattr(importlib.import_module(module), function)
            against = arguments.against if arguments.against in workload.opponents else None
            _show(measure(against, arguments.quick, **options), workload.title, facts, arguments.json)
    finally:
        if arguments.json == PRINTED and _worth_showing(facts["rows"]):
            write_json(PRINTED, facts)


def _show(told: Iterator["Told"], title: str, facts: dict[str, list], json: str | None) -> None:
    """Say each row as soon as it is measured, and at the end the table; a bench that is stopped leaves what it has."""
    from bertkit.bench.measure import facts_of, print_table, tell

    rows, notes = [], []
    try:
        for one in told:
            if isinstance(one, str):
                notes.append(one)
                facts["notes"].append(one)
            else:
                tell(one)
                rows.append(one)
                facts["rows"].append(facts_of(one))
            if json not in (None, PRINTED):
                write_json(json, facts)
    finally:
        if json != PRINTED and _worth_showing(rows):
            print_table(rows, title, notes)


def _worth_showing(rows: list) -> bool:
    """An error before the first row leaves nothing but its message."""
    return bool(rows) or sys.exc_info()[0] is None


def parse_amount(text: str) -> float:
    """A number with or without a letter for its size: 10B, 2.5M, 300k, 1e9."""
    sizes = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
    number, size = (text[:-1], sizes[text[-1].lower()]) if text[-1:].lower() in sizes else (text, 1.0)
    try:
        value = float(number) * size
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an amount; write a positive number such as 300k, 2.5M, 10B or 1e9"
        )
    return value


def _chosen(arguments: argparse.Namespace) -> list[Workload]:
    """The workloads asked for. An argument that none of them takes is a mistake."""
    if arguments.workload is None:
        if arguments.against:
            raise ValueError(f"--against needs a workload to compare: {', '.join(WORKLOADS)} or all")
        chosen = [MACHINE]
    else:
        chosen = list(WORKLOADS.values()) if arguments.workload == "all" else [WORKLOADS[arguments.workload]]
    if arguments.against and not any(arguments.against in workload.opponents for workload in chosen):
        known = ", ".join(chosen[0].opponents)
        raise ValueError(f"bench {arguments.workload} supports --against {known}, got {arguments.against}")
    taken = {name for workload in chosen for name in workload.options}
    for name in _SPECIAL:
        if getattr(arguments, name) is not None and name not in taken:
            what = f"bench {arguments.workload}" if arguments.workload else "bench without a workload"
            raise ValueError(f"--{name} has no effect in {what}")
    return chosen


def _sizes(text: str) -> list[float]:
    return [parse_amount(size) for size in text.split(",")]


def _check_installed(library: str) -> None:
    import importlib.util

    if importlib.util.find_spec(library) is None:
        raise ValueError(f"--against {library}: it is not installed; pip install 'bertkit[bench]'")
