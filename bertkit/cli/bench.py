"""The verb bench: name a workload, read a table of ratios."""

import argparse
from pathlib import Path

# workload: the function that measures it, as module:function, and what it is
WORKLOADS = {
    "collator": ("bertkit.bench.collator:bench_collator", "masking collator"),
    "step": ("bertkit.bench.step:bench_step", "training step"),
    "prepare": ("bertkit.bench.prepare:bench_prepare", "corpus preparation"),
    "tag": ("bertkit.bench.tag:bench_tag", "tagging raw text"),
}


def bench(parser: argparse.ArgumentParser):
    parser.add_argument("workload", choices=[*WORKLOADS, "all"], help="what to measure")
    parser.add_argument("--against", choices=["transformers"], help="measure this library beside ours")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to this file too")
    parser.add_argument("--quick", action="store_true", help="smaller workloads and fewer rounds")
    return run_bench


def run_bench(arguments: argparse.Namespace) -> None:
    import importlib

    from bertkit.bench.measure import print_table, write_rows

    if arguments.against:
        _check_installed(arguments.against)
    if arguments.json and not arguments.json.resolve().parent.is_dir():
        raise ValueError(f"--json: there is no folder {arguments.json.parent}")
    rows = []
    for name in WORKLOADS if arguments.workload == "all" else [arguments.workload]:
        place, title = WORKLOADS[name]
        module, _, function = place.partition(":")
        measured, notes = getattr(importlib.import_module(module), function)(arguments.against, arguments.quick)
        print_table(measured, title, notes)
        rows += measured
    if arguments.json:
        write_rows(rows, arguments.json)


def _check_installed(library: str) -> None:
    import importlib.util

    if importlib.util.find_spec(library) is None:
        raise ValueError(f"--against {library}: it is not installed; pip install 'bertkit[dev]'")
