"""Files, folders, globs and Hugging Face datasets enter, documents leave, one at a time and in a fixed order."""

import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from data_pipelines.config import CorpusConfig
from data_pipelines.readers import READERS, Piece, read_hub, reader_of


class Document(NamedTuple):
    """A document, or a part of one that is too long to hold at once."""

    text: str
    place: str
    """file:line where it starts."""
    continued: bool
    """Goes on from the part before it."""
    repeat: int
    """How often the document was handed out before, where its source has a weight above 1."""


class Source(NamedTuple):
    """One file or dataset of the corpus. Exactly one of `path` and `hub` is set."""

    name: str
    weight: float
    path: Path | None
    hub: str | None


def find_sources(config: CorpusConfig) -> list[Source]:
    """The files a corpus names, in order, each checked to be there. Nothing is opened and no network is used."""
    sources = []
    for entry in config.corpus:
        pattern, weight = _split_weight(entry)
        if pattern.startswith("hf:"):
            sources.append(Source(pattern, weight, None, pattern.removeprefix("hf:")))
            continue
        paths = [Path(path) for path in _expand(pattern)]
        sources += [Source(str(path), weight, path, None) for path in paths]
    if config.unique_paragraphs and any(source.weight > 1 for source in sources):
        raise ValueError("unique_paragraphs cannot go with a weight above 1: the repeats are what it would remove")
    return sources


def read_documents(config: CorpusConfig) -> Iterator[Document]:
    """Every document of the corpus. Memory stays the same whatever the corpus, the document or the line."""
    seen = None
    if config.unique_paragraphs:
        from data_pipelines.repeats import SeenParagraphs  # numpy, which a wrong path need not wait for

        seen = SeenParagraphs()
    for source in find_sources(config):
        for repeat in range(_passes(source.weight)):
            for text, place, continued in _take_share(_pieces(source, config), source.weight - repeat):
                if seen is not None:
                    text = seen.remove_from(text)
                if text:
                    yield Document(text, place, continued, repeat)


def corpus_bytes(config: CorpusConfig) -> int | None:
    """The corpus's size as text, estimated for compressed files, None where a dataset's size is unknown."""
    total = 0.0
    for source in find_sources(config):
        if source.path is None:
            return None
        # English text shrinks to a third or so; good enough for an estimate.
        expansion = 3.0 if source.path.suffix in (".gz", ".parquet") else 1.0
        total += source.path.stat().st_size * expansion * source.weight
    return int(total)


def fingerprint_sources(config: CorpusConfig, known: Iterable[dict] = ()) -> list[dict]:
    """What identifies each file: name, size and sha256.

    A file that has the size and time it had in `known` is taken as unchanged and not read again.
    """
    before = {entry["name"]: entry for entry in known}
    entries = []
    for source in find_sources(config):
        if source.path is None:
            entries.append({"name": source.name, "weight": source.weight})
            continue
        status = source.path.stat()
        entry = {
            "name": source.path.name,
            "weight": source.weight,
            "size": status.st_size,
            "modified": status.st_mtime_ns,
        }
        same = before.get(entry["name"])
        if same and all(same.get(key) == entry[key] for key in entry):
            entry["sha256"] = same["sha256"]
        else:
            entry["sha256"] = _sha256(source.path)
        entries.append(entry)
    return entries


def text_hash(text: str) -> int:
    """64 bits that depend on the text alone: what decides about a document, whatever else the corpus holds."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _split_weight(entry: str) -> tuple[str, float]:
    match = re.fullmatch(r"(.+)@(\d+(?:\.\d*)?|\.\d+)", entry)
    if not match or os.path.exists(entry):
        return entry, 1.0
    weight = float(match[2])
    if not 0 < weight <= 1000:
        raise ValueError(f"the weight of {match[1]!r} must lie in (0, 1000], got {match[2]}")
    return match[1], weight


def _expand(pattern: str) -> list[str]:
    path = Path(pattern).expanduser()
    if path.is_file():
        return [str(path)]
    if path.is_dir():
        found = sorted(str(file) for file in path.rglob("*") if file.is_file() and reader_of(file, exact=True))
        if not found:
            raise ValueError(f"the folder {pattern} holds no {' '.join(READERS)} file (nor one of them as .gz)")
        return found
    if path.exists():
        return [str(path)]  # a named pipe or device: read as plain text
    if glob.has_magic(pattern):
        found = sorted(file for file in glob.glob(str(path), recursive=True) if os.path.isfile(file))
        if found:
            return found
        raise ValueError(f"no file matches {pattern!r}")
    like_a_dataset = re.fullmatch(r"[\w-]+(/[\w.-]+)?", pattern)
    hint = f"; for the Hugging Face dataset of that name write hf:{pattern}" if like_a_dataset else ""
    raise ValueError(f"there is no file or folder {pattern!r}{hint}")


def _pieces(source: Source, config: CorpusConfig) -> Iterator[Piece]:
    if source.path is None:
        assert source.hub is not None
        return read_hub(source.hub, config)
    return reader_of(source.path)(source.path, config)


def _passes(weight: float) -> int:
    return int(weight) + (weight != int(weight))


def _take_share(pieces: Iterator[Piece], share: float) -> Iterator[Piece]:
    """The documents whose hash falls into the share; the parts of a document stay together."""
    bound = int(min(share, 1.0) * 2**64)
    taken = False
    for piece in pieces:
        if not piece.continued:
            taken = share >= 1 or text_hash(piece.text) < bound
        if taken:
            yield piece


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
