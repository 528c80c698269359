"""What is known of every document of a block, on the disk: whether a rule drops it, and the hashes of what is compared
of it."""

# D documents of a block, N units, P hash functions

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.findings import FORBIDDEN_RUN, OTHER_LANGUAGE, Findings
from data_pipelines.clean.near import NUM_HASHES, signature
from data_pipelines.clean.rules import Text, failed_rule, measures
from data_pipelines.clean.words import joined_words, text_hash, word_hashes


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


class Measured(NamedTuple):
    """All that the comparison of texts needs of a block."""

    findings: Findings
    units_D: np.ndarray
    """How many units of each document are compared, -1 where a rule drops it."""
    hashes_N: np.ndarray
    signatures_NP: np.ndarray
    """Empty where near copies are kept."""

    def to_bytes(self) -> bytes:
        file, findings = io.BytesIO(), np.frombuffer(json.dumps(asdict(self.findings)).encode(), np.uint8)
        np.savez(file, findings=findings, units=self.units_D, hashes=self.hashes_N, signatures=self.signatures_NP)
        return file.getvalue()

    @classmethod
    def read(cls, path: Path) -> "Measured":
        with np.load(path, allow_pickle=False) as columns:
            findings = Findings(**json.loads(columns["findings"].tobytes()))
            return cls(findings, columns["units"], columns["hashes"], columns["signatures"])


LanguageOf = Callable[[str], str]


def measure_block(
    candidates: Iterable[Candidate], config: CleanConfig, language_of: LanguageOf | None = None
) -> Measured:
    """`language_of` is asked where the config names languages."""
    findings = Findings()
    found = [_measure(candidate, config, findings, language_of) for candidate in candidates]
    hashes = [value for _, hashes, _ in found for value in hashes]
    signatures = [values for _, _, signatures in found for values in signatures]
    return Measured(
        findings,
        np.array([count for count, _, _ in found], np.int32),
        np.array(hashes, np.uint64),
        np.array(signatures, np.uint32).reshape(-1, NUM_HASHES),
    )


def _measure(
    candidate: Candidate, config: CleanConfig, findings: Findings, language_of: LanguageOf | None
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
    if reason is None and language_of is not None:
        language = language_of(candidate.text)
        findings.languages[language] = findings.languages.get(language, 0) + 1
        reason = None if language in config.languages else OTHER_LANGUAGE
    if reason is not None:
        findings.drop(reason, candidate.text, candidate.place)
        return -1, [], []
    units = candidate.units(config.unit)
    hashes_of_units = [text.hashes_W]
    if config.unit == "paragraphs":
        hashes_of_units = [word_hashes(joined_words(unit)) for unit in units]
    exact = [text_hash(hashes_W) for hashes_W in hashes_of_units]
    near = [signature(hashes_W, config.near_ngram) for hashes_W in hashes_of_units] if config.near else []
    return len(units), exact, near
