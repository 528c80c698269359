"""What is known of every document, on the disk: whether a rule drops it, and the hashes of what is compared of it."""

# N units, P hash functions

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_pipelines import durable
from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.findings import FORBIDDEN_RUN, Findings
from data_pipelines.clean.near import NUM_HASHES, signature
from data_pipelines.clean.rules import Text, failed_rule, measures
from data_pipelines.clean.words import ngram_hashes, word_hashes, words_of

_CHUNK = 1000
_PROGRESS = "progress.json"
_COLUMNS: dict[str, Any] = {
    "units": np.int32,  # of each document: how many of its units are compared, -1 where a rule drops it
    "hashes": np.uint64,  # of each unit
    "signatures": np.uint32,  # of each unit, P numbers
}


class Candidate(NamedTuple):
    """A document as it would be kept: without private data, and without lines that must not be trained on."""

    text: str
    place: str
    characters: int
    """Of the document as it was read."""
    private: dict[str, int]
    removed: list[str]

    def units(self, unit: str) -> list[str]:
        """What of it is compared with other texts."""
        return [self.text] if unit == "documents" else [line for line in self.text.split("\n") if line.strip()]


class Measured:
    """Columns in files of `folder`, to which chunks of documents are appended; what a kill cut short is not counted."""

    def __init__(self, folder: Path):
        self._folder = folder
        path = folder / _PROGRESS
        progress = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"sizes": {}, "findings": {}}
        self.findings = Findings(**progress["findings"])
        self._sizes: dict[str, int] = {name: progress["sizes"].get(name, 0) for name in _COLUMNS}
        for name, size in self._sizes.items():
            if (folder / name).is_file():
                with open(folder / name, "r+b") as file:
                    file.truncate(size)

    def append(self, columns: dict[str, np.ndarray]) -> None:
        for name, kind in _COLUMNS.items():
            data = columns[name].astype(kind).tobytes()
            durable.append_file(self._folder / name, data, anew=self._sizes[name] == 0)
            durable.sync(self._folder / name)
            self._sizes[name] += len(data)
        progress = {"sizes": self._sizes, "findings": asdict(self.findings)}
        durable.replace_file(self._folder / _PROGRESS, durable.json_line(progress).encode())

    @property
    def units(self) -> np.ndarray:
        return self._column("units")

    @property
    def hashes_N(self) -> np.ndarray:
        return self._column("hashes")

    @property
    def signatures_NP(self) -> np.ndarray:
        return self._column("signatures").reshape(-1, NUM_HASHES)

    def _column(self, name: str) -> np.ndarray:
        if not self._sizes[name]:  # an empty file cannot be mapped
            return np.zeros(0, _COLUMNS[name])
        return np.memmap(self._folder / name, _COLUMNS[name], "r")


def measure_documents(
    candidates: Iterable[Candidate], measured: Measured, config: CleanConfig, progress: Callable[[int], None]
) -> None:
    """Measure what was not measured before a kill."""
    remaining = islice(candidates, measured.findings.documents, None)
    while chunk := list(islice(remaining, _CHUNK)):
        parts = [_measure(candidate, config, measured.findings) for candidate in chunk]
        hashes = [value for _, hashes, _ in parts for value in hashes]
        signatures = [values for _, _, signatures in parts for values in signatures]
        measured.append(
            {
                "units": np.array([count for count, _, _ in parts]),
                "hashes": np.array(hashes, np.uint64),
                "signatures": np.array(signatures, np.uint32),
            }
        )
        progress(measured.findings.characters)


def _measure(
    candidate: Candidate, config: CleanConfig, findings: Findings
) -> tuple[int, list[np.uint64], list[np.ndarray]]:
    findings.documents += 1
    findings.characters += candidate.characters
    for kind, count in candidate.private.items():
        findings.private[kind] = findings.private.get(kind, 0) + count
    if candidate.removed:
        findings.remove_lines(candidate.removed, candidate.place)
        if not candidate.text.strip():
            findings.dropped[FORBIDDEN_RUN] = findings.dropped.get(FORBIDDEN_RUN, 0) + 1
            return -1, [], []
    text = Text.of(candidate.text)
    values = measures(text, config)
    findings.measure(values)
    reason = failed_rule(values, config)
    if reason is not None:
        findings.drop(reason, candidate.text, candidate.place)
        return -1, [], []
    units = candidate.units(config.unit)
    hashes_of_units = [text.hashes_W] if config.unit == "documents" else [word_hashes(words_of(unit)) for unit in units]
    whole = [ngram_hashes(hashes_W, len(hashes_W)) for hashes_W in hashes_of_units]
    exact = [hashes[0] if len(hashes) else np.uint64(0) for hashes in whole]
    near = [signature(hashes_W, config.near_ngram) for hashes_W in hashes_of_units] if config.near else []
    return len(units), exact, near
