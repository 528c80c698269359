"""A corpus enters, the part of it that is worth training on leaves, with a count and examples of what went and why.

Three steps, of which the first and the last can be done in parts, by many workers, each on its own blocks:

1. `measure_part` notes of every text what comparisons need;
2. `decide` compares the notes of all parts, once;
3. `write_part` writes what stays, and `finish` gathers it.

The notes are on disk, in a folder next to the one to write, so that memory does not grow with the corpus. A block is
complete or absent, even if it is made twice. Killed anywhere, the same call resumes after the last block.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines import durable
from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.contamination import ForbiddenRuns
from data_pipelines.clean.decision import KEPT
from data_pipelines.clean.decision import decide as decide_blocks
from data_pipelines.clean.findings import Findings, shorten
from data_pipelines.clean.job import (
    DECIDED,
    FACTS,
    MEASURED,
    TEXT,
    WHOLE,
    WRITTEN,
    Job,
    against_of,
    open_job,
    read_finished,
)
from data_pipelines.clean.languages import identifier
from data_pipelines.clean.measured import Candidate, Measured, measure_block
from data_pipelines.clean.on_disk import in_pieces
from data_pipelines.clean.private import mask_private
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import Document, check_unchanged, read_documents
from data_pipelines.text.parts import Block, Part, read_blocks

_VERDICTS, _SCRATCH = "verdicts", "deciding"

Progress = Callable[[str, int], None]
"""Receives what is being done, and how many characters of the corpus were read for it."""


def clean(corpus: CorpusConfig, config: CleanConfig, out: Path, progress: Progress) -> dict[str, Any]:
    """Write the cleaned corpus as JSON Lines into `out`/text, whole or not at all. Returns the facts, which also lie in
    `out`/clean.json; a folder that is finished is left as it is."""
    job = open_job(corpus, config, out)
    if (finished := read_finished(out)) is not None:
        return finished
    make_part(job, Part(), progress)
    if not job.decided:
        decide(job, 1)
        make_part(job, Part(), progress)
    return finish(job)


def make_part(job: Job, part: Part, progress: Progress) -> None:
    """Do what the job is at: measure before the decision, write after it."""
    if job.decided:
        write_part(job, part, progress)
    else:
        measure_part(job, part, progress)


def measure_part(job: Job, part: Part, progress: Progress) -> None:
    runs, names, read = _forbidden_runs(job), [], 0
    language_of = identifier(job.config.languages) if job.config.languages else None
    for block, documents in read_blocks(job.corpus, part):
        names.append(block.name)
        if not (job.state / MEASURED / f"{block.name}.npz").is_file():
            candidates = (_candidate(document, job.config, runs) for document in documents)
            job.publish(f"{MEASURED}/{block.name}.npz", measure_block(candidates, job.config, language_of).to_bytes())
        read += sum(len(document.text) for document in documents)
        progress("measuring", read)
    job.publish(f"{MEASURED}/{part.folder}.json", json.dumps(names).encode())


def decide(job: Job, num_parts: int) -> Findings:
    """Decide what repeats what, once all parts are measured."""
    parts = [Part(number, num_parts).folder for number in range(1, num_parts + 1)]
    lists = {name: job.read(f"{MEASURED}/{name}.json") for name in parts}
    if missing := [name for name, blocks in lists.items() if blocks is None]:
        raise ValueError(f"{job.out} lacks {len(missing)} of {num_parts} measured parts: {', '.join(missing[:5])}")
    blocks = sorted(block for blocks in lists.values() for block in blocks)
    paths = (job.state / MEASURED / f"{block}.npz" for block in blocks)
    with durable.scratch_folder(job.state / _SCRATCH) as folder:
        decision = decide_blocks(paths, job.config, folder)
        job.publish(_VERDICTS, (piece.tobytes() for piece in in_pieces(decision.verdict_N)))
    decided = {
        "blocks": dict(zip(blocks, decision.starts, strict=True)),
        "examples": decision.examples,
        "findings": dataclasses.asdict(decision.findings),
    }
    job.publish(DECIDED, durable.json_line(decided).encode())
    return decision.findings


def write_part(job: Job, part: Part, progress: Progress) -> None:
    decided, runs, read = job.read(DECIDED), _forbidden_runs(job), 0
    shown = {unit for pairs in decided["examples"].values() for pair in pairs for unit in pair}
    for block, documents in read_blocks(job.corpus, part):
        if not (job.state / WRITTEN / f"{block.name}.json").is_file():
            units = _decided_units(job, block, decided["blocks"].get(block.name), len(documents))
            candidates = [_candidate(document, job.config, runs) for document in documents]
            lines, written = _kept(candidates, units, shown, job.config.unit)
            if lines:
                job.publish(f"{WHOLE}/{TEXT}/clean-{block.name}.jsonl", "".join(lines).encode(errors="replace"))
            job.publish(f"{WRITTEN}/{block.name}.json", durable.json_line(written).encode())
        read += sum(len(document.text) for document in documents)
        progress("writing", read)
    job.publish(f"{WRITTEN}/{part.folder}.json", b"[]")


def finish(job: Job) -> dict[str, Any]:
    """Gather what the parts wrote: from then on the folder is there, whole. Returns the facts."""
    decided = job.read(DECIDED)
    findings, texts = Findings(**decided["findings"]), dict[str, dict[str, str]]()
    for block in decided["blocks"]:
        written = job.read(f"{WRITTEN}/{block}.json")
        if written is None:
            raise ValueError(f"{job.out} lacks the text of block {block}; make the missing parts, then merge again")
        findings.kept_documents += written["documents"]
        findings.kept_characters += written["characters"]
        texts |= written["texts"]
    for reason, pairs in decided["examples"].items():
        findings.examples[reason] = [
            {**texts[str(unit)], "kept": texts[str(original)]["text"]} for unit, original in pairs
        ]
    check_unchanged(job.corpus, job.identity["corpus"]["sources"])
    facts = {**findings.facts(), "identity": job.identity}
    whole = job.state / WHOLE
    durable.replace_file(whole / FACTS, durable.json_line(facts).encode())
    durable.sync_tree(whole)
    durable.move(whole, job.out)
    durable.remove_folder(job.state)
    return facts


def _decided_units(job: Job, block: Block, start: int | None, num_documents: int) -> Iterator[list[tuple[int, bool]]]:
    """For each document of a block its units: the number of each in the corpus, and whether it is kept."""
    if start is not None:
        units_D = Measured.read(job.state / MEASURED / f"{block.name}.npz").units_D
    if start is None or len(units_D) != num_documents:
        check_unchanged(job.corpus, job.identity["corpus"]["sources"])
        raise AssertionError(f"{block.name} was measured with other documents")
    counts_D = np.maximum(units_D, 0)
    kept_N = np.fromfile(job.state / _VERDICTS, np.uint8, counts_D.sum(), offset=start) == KEPT
    at = 0
    for count in counts_D.tolist():
        yield list(enumerate(kept_N[at : at + count].tolist(), start + at))
        at += count


def _kept(
    candidates: list[Candidate], units: Iterator[list[tuple[int, bool]]], shown: set[int], unit: str
) -> tuple[list[str], dict[str, Any]]:
    """The lines to write of a block, and its facts."""
    lines: list[str] = []
    documents, characters, texts = 0, 0, {}
    for candidate, decided in zip(candidates, units, strict=True):
        kept = []
        for text, (number, stays) in zip(candidate.units(unit) if decided else (), decided, strict=True):
            if number in shown:
                texts[number] = {"place": candidate.place, "text": shorten(text)}
            if stays:
                kept.append(text)
        if kept:
            text = candidate.text if len(kept) == len(decided) else "\n".join(kept)
            documents += 1
            characters += len(text)
            lines.append(json.dumps({"text": text, "source": candidate.place}, ensure_ascii=False) + "\n")
    return lines, {"documents": documents, "characters": characters, "texts": texts}


def _forbidden_runs(job: Job) -> ForbiddenRuns:
    against = against_of(job.corpus, job.config)
    texts: Iterator[str] = (document.text for document in read_documents(against)) if against else iter(())
    return ForbiddenRuns(texts, job.config.against_ngram)


def _candidate(document: Document, config: CleanConfig, runs: ForbiddenRuns) -> Candidate:
    text, private = mask_private(document.text, config.private)
    text, removed = runs.remove_from(text)
    return Candidate(text, document.place, len(document.text), private, removed)
