"""Prepares rows for a store: made in a folder here, copied to the URL when they are finished, the manifest last."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from data_pipelines import durable
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import MANIFEST, SPLITS, read_manifest
from data_pipelines.rows.prepare import SOURCES, Progress, merge, note_sources, prepare
from data_pipelines.rows.provenance import identify, refuse_other
from data_pipelines.rows.shards import FILES
from data_pipelines.rows.stored import fetch_counts, open_stored, read_origin
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.parts import Part
from data_pipelines.text.transfer import (
    check_writable,
    is_stored,
    put_file,
    put_folder,
    read_stored,
    stored_files,
)
from data_pipelines.vocab.tokenizer import load_tokenizer

_SENT = "sent.json"
"""Names of the files that are on the store: what an interrupted copy need not send again."""


def prepare_stored(
    corpus: CorpusConfig,
    tokenizer_path: Path | str,
    config: PrepareConfig,
    url: str,
    *,
    scratch: Path,
    part: Part | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Path:
    """Prepare a corpus for a URL, resume that, or find it done. Returns a folder in `scratch` that describes the rows;
    the caller removes `scratch` afterwards."""
    whole = url.rstrip("/")
    url = f"{whole}/{part.folder}" if part else whole
    if is_stored(f"{url}/{MANIFEST}"):
        found = read_manifest(url)["identity"]
        wanted = identify(corpus, load_tokenizer(tokenizer_path), config, part or Part(), found["sources"])
        refuse_other(wanted, found, url)
        return _described(url, scratch)
    check_writable(url)
    if part and is_stored(f"{whole}/{SOURCES}"):
        (scratch / "made").mkdir(parents=True, exist_ok=True)
        durable.replace_file(scratch / "made" / SOURCES, read_stored(f"{whole}/{SOURCES}"))
    folder = prepare(corpus, tokenizer_path, config, scratch / "made", part=part, report=report)
    publish(folder, url)
    return folder


def begun_parts(out: Path | str) -> dict[str, bool]:
    """The parts in a folder or at a URL by their names, and whether each is finished."""
    if isinstance(out, Path):
        return {path.name: (path / MANIFEST).is_file() for path in sorted(out.glob("part-*-of-*"))}
    files = stored_files(out)
    names = sorted({name.partition("/")[0] for name in files if name.startswith("part-")})
    return {name: f"{name}/{MANIFEST}" in files for name in names}


def is_finished(out: Path | str) -> bool:
    """Whether a folder or a URL holds one set."""
    return (out / MANIFEST).is_file() if isinstance(out, Path) else is_stored(f"{out}/{MANIFEST}")


def check_made_of(
    out: Path | str, corpus: CorpusConfig, tokenizer_path: Path | str, config: PrepareConfig, num_parts: int
) -> None:
    """Refuse a folder or URL whose finished set or parts were made from another corpus, tokenizer or setting, or belong
    to another number of parts. Of parts one is enough: `merge` compares it with the others."""
    parts = begun_parts(out)
    if foreign := [name for name in parts if not name.endswith(f"-of-{num_parts:05d}")]:
        raise ValueError(f"{out} holds {foreign[0]}, which is not one of {num_parts} parts; choose another folder")
    made = [f"{out}/{name}" for name, finished in parts.items() if finished]
    for place in [str(out)] if is_finished(out) else made[:1]:
        found = read_manifest(place)["identity"]
        wanted = identify(corpus, load_tokenizer(tokenizer_path), config, Part(*found["part"]), found["sources"])
        refuse_other(wanted, found, place)


def note_sources_at(out: Path | str, corpus: CorpusConfig, scratch: Path | None) -> None:
    """`note_sources` in a folder, or at a URL by way of `scratch`."""
    if isinstance(out, Path):
        note_sources(out, corpus)
        return
    assert scratch is not None
    note_sources(scratch, corpus)
    put_file(scratch / SOURCES, f"{out}/{SOURCES}")


def publish(folder: Path, url: str) -> None:
    """Copy a finished folder to a URL; a copy that was interrupted continues."""
    shards = [entry["name"] for split in SPLITS for entry in read_manifest(folder)["shards"][split]]
    names = [f"{name}.{kind}" for name in shards for kind in FILES]
    names += [f"tokenizer/{path.name}" for path in sorted((folder / "tokenizer").iterdir())]
    record = folder / _SENT
    sent = json.loads(record.read_bytes()) if record.is_file() else []
    for name in names:
        if name not in sent:
            put_file(folder / name, f"{url}/{name}")
            sent.append(name)
            durable.replace_file(record, durable.json_bytes(sent))
    put_file(folder / MANIFEST, f"{url}/{MANIFEST}")


def merge_stored(url: str, *, scratch: Path) -> tuple[Path, bool]:
    """Make one set of the parts at a URL. Returns a folder in `scratch` that describes it, and whether it was one set
    before."""
    url = url.rstrip("/")
    if is_stored(f"{url}/{MANIFEST}"):
        return _described(url, scratch), True
    files, parts = stored_files(url), scratch / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    for name in files:
        if found := re.fullmatch(rf"(part-\d+-of-\d+)/{MANIFEST}", name):
            sizes = {name.removeprefix(f"{found[1]}/"): file.size for name, file in files.items()}
            _outline_part(f"{url}/{found[1]}", parts / found[1], sizes)
    merge(parts)
    tokenizer = [f"tokenizer/{path.name}" for path in sorted((parts / "tokenizer").iterdir())]
    put_folder(parts, url, tokenizer, last=MANIFEST)
    return _described(url, scratch), False


def _outline_part(url: str, folder: Path, sizes: dict[str, int]) -> None:
    """Make a folder here for a part at a URL, with all but its shards, whose `sizes` on the store must be right."""
    open_stored(url, folder, max_bytes=0)
    entries = [entry for split in SPLITS for entry in read_manifest(folder)["shards"][split]]
    for name, size in ((f"{entry['name']}.{kind}", entry[kind]["size"]) for entry in entries for kind in FILES):
        if sizes.get(name) != size:
            raise ValueError(f"{url}/{name} is missing or cut; remove {url} and prepare this part again")
    origin = read_origin(folder)
    assert origin is not None
    fetch_counts(folder, origin, entries)


def _described(url: str, scratch: Path) -> Path:
    """A folder with what describes finished rows at a URL."""
    open_stored(url, scratch / "stored", max_bytes=0)
    return scratch / "stored"
