"""What all tests share: a test whose docstring begins with "Row 4:" shows a row of the table of faults.

`make test-faults` selects such tests by the marker `row` and prints the table at the end: what was injected, how many
cases were tried, whether the promise held. Cases are counted with the fixture `tried`; a test that counts none is one.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from machine import stretch

# The same examples at every run, and no limits on time: what is green stays green, on a machine that does other
# things as well. `make fuzz` looks for new ones.
settings.register_profile(
    "bertkit",
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("bertkit")

INJECTED = {
    1: "kill -9 at random moments",
    2: "death around every write, fsync, rename and delete of a save",
    3: "kills within an epoch, at its border, at the last step",
    4: "SIGTERM and SIGINT, to all ranks or one, once or twice",
    5: "kill -9 of one of two ranks",
    6: "a full disk while saving",
    7: "checkpoints cut, with flipped bits, with files lost or emptied",
    8: "every checkpoint bad",
    9: "1, 2, 1 processes; a batch that does not divide",
    10: "one step in other micro-batches",
    11: "losses and gradients that are not finite",
    12: "0, 1, 2 loader workers",
    13: "another corpus, tokenizer or recipe before a resume",
    14: "corpora of wrong bytes",
    15: "one line of 50 MB",
    16: "malformed tag files",
    17: "pickles that would run code, oversized headers",
    18: "vocabularies and labels that do not fit",
    19: "two runs in one folder",
    20: "folders that cannot be written",
    21: "hub names without a network, silent hubs",
    22: "wrong numbers, keys and flags",
    23: "pruning that fails half-way",
    24: "signals to every process of a run, and to its launcher",
    25: "a loader worker killed",
    26: "output that cannot be written",
    27: "prepared rows, tokenizers and notes of texts damaged",
    28: "ranks started with other recipes, data or code",
    29: "the checkpoints of a run gone, or links",
    30: "folders with other things, a recipe of the user's own",
    31: "losses that are not finite, in the log",
    32: "signals after the last step, between seeds, in every stage of the demo",
    33: "texts that change while they are read",
    34: "no locks, disks that fail or are full, too few open files, names that cannot be used",
    35: "another number of threads on a resume",
    36: "models, batches and vocabularies beyond the memory",
    37: "weights, numbers, words and ids that mean something else",
    38: "a gzip bomb, a line of 200 MB",
    39: "an export killed half-way",
    40: "a busy machine while minutes become steps",
}
_ROW = re.compile(r"Row (\d+):")


@pytest.fixture
def tried(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Call it for every case that held; with a number, for so many."""

    def count(cases: int = 1) -> None:
        request.node.user_properties.append(("cases", cases))

    return count


@pytest.fixture
def within(request: pytest.FixtureRequest) -> Callable[[float], float]:
    """Seconds that a process may take: under `make test-faults` as many as promised, or as many times more as any
    process now takes longer for its work than on a machine of its own. Every day only what never ends is told from
    what does."""
    return lambda seconds: seconds * (stretch() if _asks_for_rows(request.config) else 6)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers a core: tests of faults mostly wait for processes that they started."""
    return 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2 * (os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        row = _ROW.match(getattr(getattr(item, "function", None), "__doc__", None) or "")
        if row:
            item.add_marker("row")
            item.user_properties.append(("row", int(row[1])))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    untested = {
        report.longrepr[2] for report in terminalreporter.stats.get("skipped", []) if "NO GPU" in report.longrepr[2]
    }
    for reason in untested:
        terminalreporter.section(reason.removeprefix("Skipped: "), red=True, bold=True)
    if not _asks_for_rows(config):
        return
    cases: dict[int, int] = defaultdict(int)
    broken: dict[int, list[str]] = defaultdict(list)
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            row = dict(report.user_properties).get("row")
            if row is None or (outcome == "passed" and report.when != "call"):
                continue
            counted = sum(value for name, value in report.user_properties if name == "cases")
            cases[row] += counted or int(outcome == "passed")
            if outcome != "passed":
                broken[row].append(f"{report.nodeid.rpartition('::')[2]} {outcome}")
    width = max(map(len, INJECTED.values()))
    terminalreporter.section("faults")
    terminalreporter.line(f"row  {'injected':<{width}}  cases  held")
    for row, injected in INJECTED.items():
        held = "no: " + ", ".join(broken[row]) if broken[row] else "yes" if cases[row] else "not tried"
        terminalreporter.line(f"{row:>3}  {injected:<{width}}  {cases[row]:>5}  {held}")
    num_held = sum(bool(cases[row]) and not broken[row] for row in INJECTED)
    terminalreporter.line(f"{num_held} of {len(INJECTED)} rows held, in {sum(cases.values()):,} cases")


def _asks_for_rows(config: pytest.Config) -> bool:
    return bool(re.search(r"(?<!not )\brow\b", config.option.markexpr))
