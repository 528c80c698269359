"""Which units of a corpus repeat an earlier one: decided once, from what was measured of all blocks, in their order."""

# N units, P hash functions

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_pipelines import durable
from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.findings import MAX_EXAMPLES, NEARLY_REPEATED, REPEATED, Findings
from data_pipelines.clean.measured import Measured
from data_pipelines.clean.near import NUM_HASHES, find_copies
from data_pipelines.clean.on_disk import AT_ONCE, earlier_equals, filled, in_pieces, map_numbers, write_numbers

KEPT = 0
REASONS = {REPEATED: 1, NEARLY_REPEATED: 2}


class Decision(NamedTuple):
    findings: Findings
    """Of all blocks, and the repeats."""
    starts: list[int]
    """The number of each block's first unit."""
    verdict_N: np.ndarray
    """`KEPT`, or the number of one of the `REASONS`; mapped from a file."""
    examples: dict[str, list[tuple[int, int]]]
    """Some repeats by reason: the number of the unit that goes, and of the one that stays."""


def decide(blocks: Iterable[Path], config: CleanConfig, folder: Path) -> Decision:
    """From the files of all blocks, in order. What is known of each unit is in files in `folder`, an empty one; memory
    holds what is known of one block, and where each begins."""
    findings, starts = Findings(), [0]
    hashes, signatures = folder / "hashes", folder / "signatures"
    for path in (hashes, signatures):
        path.write_bytes(b"")
    for path in blocks:
        measured = Measured.read(path)
        findings.add(measured.findings)
        durable.append_file(hashes, measured.hashes_N.tobytes(), anew=False)
        durable.append_file(signatures, measured.signatures_NP.tobytes(), anew=False)
        starts.append(starts[-1] + len(measured.hashes_N))
    verdict_N, original_N = judge(hashes, signatures, config, folder)
    examples = {}
    for reason, units in repeats_of(verdict_N).items():
        findings.dropped[reason] = units.num_units
        examples[reason] = [(unit, int(original_N[unit])) for unit in units.first]
    return Decision(findings, starts[:-1], verdict_N, examples)


def judge(hashes: Path, signatures: Path, config: CleanConfig, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """From a file of hashes and one of signatures, for each unit the verdict, and the kept unit that it repeats, -1
    where it is kept itself. Both are mapped from files in `folder`."""
    hashes_N = map_numbers(hashes, np.dtype(np.uint64))
    if config.near:
        signatures_NP = map_numbers(signatures, np.dtype(np.uint32)).reshape(-1, NUM_HASHES)
        original_N = find_copies(signatures_NP, config.near_threshold, folder)
    else:
        original_N = filled(folder / "copies", -1, np.int64, len(hashes_N))
    verdicts = (np.where(piece < 0, KEPT, REASONS[NEARLY_REPEATED]).astype(np.uint8) for piece in in_pieces(original_N))
    verdict_N = write_numbers(folder / "verdicts", verdicts)
    if config.exact:
        for equals in earlier_equals(hashes_N, folder):
            # The first of equal texts may itself nearly repeat another one, and is then not what is kept.
            kept_C = original_N[equals.first_C]
            original_N[equals.place_C] = np.where(kept_C < 0, equals.first_C, kept_C)
            verdict_N[equals.place_C] = REASONS[REPEATED]
    return verdict_N, original_N


class Repeats(NamedTuple):
    num_units: int
    first: list[int]
    """Some of them."""


def repeats_of(verdict_N: np.ndarray) -> dict[str, Repeats]:
    """The units that go, by reason."""
    found = {}
    for reason, number in REASONS.items():
        count, first = 0, list[int]()
        for at in range(0, len(verdict_N), AT_ONCE):
            units = np.flatnonzero(verdict_N[at : at + AT_ONCE] == number) + at
            count += len(units)
            first += units[: MAX_EXAMPLES - len(first)].tolist()
        if count:
            found[reason] = Repeats(count, first)
    return found
