"""A corpus enters, the part of it that is worth training on leaves, with a count and examples of what went and why.

The corpus is read twice: once to measure every text, once to write what stays. Between the two the texts are compared
by their hashes and signatures, which lie on the disk, so that memory hardly grows with the corpus. Killed while it
measures, it resumes after the last thousand documents.
"""

# N units

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines import durable
from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.contamination import ForbiddenRuns
from data_pipelines.clean.findings import NEARLY_REPEATED, REPEATED, Findings, shorten
from data_pipelines.clean.measured import Candidate, Measured, measure_documents
from data_pipelines.clean.near import find_copies
from data_pipelines.clean.private import mask_private
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import check_unchanged, find_sources, fingerprint_sources, read_documents

FACTS, TEXT = "clean.json", "text"
"""In a folder of cleaned text: what was found, and the files to train on."""
_FORMAT = 1
_MAX_SHARD = 256 << 20
"""Bytes of one file of cleaned text."""
_AT_ONCE = 1 << 20
"""Bytes to write at once."""

Progress = Callable[[str, int], None]
"""Is told what is being done, and how many characters of the corpus were read for it."""


def clean(corpus: CorpusConfig, config: CleanConfig, out: Path, progress: Progress) -> dict[str, Any]:
    """Write the cleaned corpus as JSON Lines into `out`/text, whole or not at all. Returns the facts, which also lie in
    `out`/clean.json; a folder that is finished is left as it is."""
    check_cleanable(corpus, out)
    against = dataclasses.replace(corpus, corpus=config.against) if config.against else None
    identity = _identity(corpus, against, config)
    if (finished := read_finished(out)) is not None:
        if finished["identity"] != identity:
            raise ValueError(f"{out} holds another text, or one that was cleaned otherwise; name another folder")
        return finished
    runs = ForbiddenRuns((text.text for text in read_documents(against)) if against else (), config.against_ngram)
    state = _open_state(out.with_name(f".cleaning-{out.name}"), identity)
    measured = Measured(state)
    measure_documents(_candidates(corpus, config, runs), measured, config, lambda done: progress("measuring", done))
    with durable.scratch_folder(state / "whole") as whole:
        findings = _write_kept(_candidates(corpus, config, runs), measured, config, whole / TEXT, progress)
        check_unchanged(corpus, identity["corpus"]["sources"])
        facts = {**findings.facts(), "identity": identity}
        durable.write_file(whole / FACTS, durable.json_line(facts).encode())
        durable.sync_tree(whole)
        durable.move(whole, out)
    durable.remove_folder(state)
    return facts


def check_cleanable(corpus: CorpusConfig, out: Path) -> None:
    """Refuse before the work what cannot end well."""
    for source in find_sources(corpus):
        if source.weight != 1:
            raise ValueError(f"{source.name}@{source.weight:g}: a weight repeats text; give it to the cleaned text")
    if out.exists() and read_finished(out) is None:
        raise ValueError(f"{out} exists and holds no cleaned text; name a new folder")


def read_finished(out: Path) -> dict[str, Any] | None:
    """The facts of a folder of cleaned text; None where there is no such folder."""
    try:
        facts = json.loads((out / FACTS).read_text(encoding="utf-8"))
        return facts if facts["identity"] else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{out / FACTS} is damaged; delete {out} and clean again") from None


def _identity(corpus: CorpusConfig, against: CorpusConfig | None, config: CleanConfig) -> dict[str, Any]:
    """What the cleaned text depends on, as JSON gives it back."""
    identity = {
        "format": _FORMAT,
        "corpus": {**dataclasses.asdict(corpus), "sources": fingerprint_sources(corpus)},
        "clean": dataclasses.asdict(config),
        "against": fingerprint_sources(against) if against else [],
    }
    return json.loads(json.dumps(identity))


def _open_state(state: Path, identity: dict[str, Any]) -> Path:
    """The folder of what was measured before a kill, emptied where it belongs to other text or settings."""
    known, line = state / "identity.json", durable.json_line(identity)
    if state.is_dir() and not (known.is_file() and known.read_text(encoding="utf-8") == line):
        durable.remove_folder(state)
    if not state.is_dir():
        state.mkdir(parents=True)
        durable.write_file(known, line.encode())
    return state


def _candidates(corpus: CorpusConfig, config: CleanConfig, runs: ForbiddenRuns) -> Iterator[Candidate]:
    for document in read_documents(corpus):
        text, private = mask_private(document.text, config.private)
        text, removed = runs.remove_from(text)
        yield Candidate(text, document.place, len(document.text), private, removed)


def _write_kept(
    candidates: Iterator[Candidate], measured: Measured, config: CleanConfig, folder: Path, progress: Progress
) -> Findings:
    """Write the documents that stay, and count what goes."""
    findings, original_N, exact_N = measured.findings, *_originals(measured, config)
    shown = set(original_N[original_N >= 0][:1000].tolist())
    texts: dict[int, str] = {}
    unit, read, shards = 0, 0, _Shards(folder)
    for candidate, num_units in zip(candidates, measured.units.tolist(), strict=True):
        read += candidate.characters
        progress("writing", read)
        kept = []
        for part in candidate.units(config.unit) if num_units >= 0 else ():
            original = int(original_N[unit])
            if original < 0:
                kept.append(part)
                if unit in shown:
                    texts[unit] = shorten(part)
            else:
                reason = REPEATED if exact_N[unit] else NEARLY_REPEATED
                findings.drop(reason, part, candidate.place, texts.get(original, ""))
            unit += 1
        if kept:
            text = candidate.text if len(kept) == num_units else "\n".join(kept)
            findings.kept_documents += 1
            findings.kept_characters += len(text)
            shards.write({"text": text, "source": candidate.place})
    shards.flush()
    return findings


def _originals(measured: Measured, config: CleanConfig) -> tuple[np.ndarray, np.ndarray]:
    """For each unit the kept one that it repeats, -1 where it is kept itself; and whether it does word for word."""
    hashes_N = measured.hashes_N
    original_N = np.full(len(hashes_N), -1)
    if config.near:
        original_N = find_copies(measured.signatures_NP, config.near_threshold)
    _, first, group_N = np.unique(hashes_N, return_index=True, return_inverse=True)
    first_N = first[group_N]
    exact_N = config.exact & (first_N != np.arange(len(hashes_N)))
    # The first of equal texts may itself nearly repeat another one, and is then not what is kept.
    kept_N = np.where(original_N[first_N] < 0, first_N, original_N[first_N])
    return np.where(exact_N, kept_N, original_N), exact_N


class _Shards:
    """JSON Lines in files of bounded size."""

    def __init__(self, folder: Path):
        folder.mkdir()
        self._folder = folder
        self._lines: list[bytes] = []
        self._held, self._size, self._number = 0, 0, 0

    def write(self, record: dict[str, Any]) -> None:
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode(errors="replace")
        if self._size and self._size + self._held + len(line) > _MAX_SHARD:
            self.flush()
            self._number, self._size = self._number + 1, 0
        self._lines.append(line)
        self._held += len(line)
        if self._held >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        path = self._folder / f"clean-{self._number:05d}.jsonl"
        durable.append_file(path, b"".join(self._lines), anew=self._size == 0)
        self._size += self._held
        self._lines, self._held = [], 0
