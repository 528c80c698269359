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

KEPT = 0
REASONS = {REPEATED: 1, NEARLY_REPEATED: 2}


class Decision(NamedTuple):
    findings: Findings
    """Of all blocks, and the repeats."""
    starts: list[int]
    """The number of each block's first unit."""
    verdict_N: np.ndarray
    """`KEPT`, or the number of one of the `REASONS`."""
    examples: dict[str, list[tuple[int, int]]]
    """Some repeats by reason: the number of the unit that goes, and of the one that stays."""


def decide(blocks: Iterable[Path], config: CleanConfig, scratch: Path) -> Decision:
    """From the files of all blocks, in order. Signatures are gathered in the file `scratch`, which is removed; memory
    holds some tens of bytes a unit."""
    findings, starts, hashes = Findings(), [0], [np.zeros(0, np.uint64)]
    try:
        for path in blocks:
            measured = Measured.read(path)
            findings.add(measured.findings)
            hashes.append(measured.hashes_N)
            durable.append_file(scratch, measured.signatures_NP.tobytes(), anew=len(starts) == 1)
            starts.append(starts[-1] + len(measured.hashes_N))
        original_N, exact_N = _originals(np.concatenate(hashes), _signatures(scratch, config), config)
    finally:
        scratch.unlink(missing_ok=True)
    verdict_N = np.where(original_N < 0, KEPT, np.where(exact_N, REASONS[REPEATED], REASONS[NEARLY_REPEATED]))
    examples = {}
    for reason, number in REASONS.items():
        units = np.flatnonzero(verdict_N == number)
        if len(units):
            findings.dropped[reason] = len(units)
            examples[reason] = [(int(unit), int(original_N[unit])) for unit in units[:MAX_EXAMPLES]]
    return Decision(findings, starts[:-1], verdict_N.astype(np.uint8), examples)


def _signatures(path: Path, config: CleanConfig) -> np.ndarray | None:
    """Mapped from the disk; None where near copies are kept or there is no text."""
    if not config.near or not path.is_file() or not path.stat().st_size:  # an empty file cannot be mapped
        return None
    return np.memmap(path, np.uint32, "r").reshape(-1, NUM_HASHES)


def _originals(
    hashes_N: np.ndarray, signatures_NP: np.ndarray | None, config: CleanConfig
) -> tuple[np.ndarray, np.ndarray]:
    """For each unit the kept one that it repeats, -1 where it is kept itself; and whether it does word for word."""
    original_N = np.full(len(hashes_N), -1)
    if signatures_NP is not None:
        original_N = find_copies(signatures_NP, config.near_threshold)
    _, first, group_N = np.unique(hashes_N, return_index=True, return_inverse=True)
    first_N = first[group_N]
    exact_N = config.exact & (first_N != np.arange(len(hashes_N)))
    # The first of equal texts may itself nearly repeat another one, and is then not what is kept.
    kept_N = np.where(original_N[first_N] < 0, first_N, original_N[first_N])
    return np.where(exact_N, kept_N, original_N), exact_N
