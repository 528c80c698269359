"""Files, folders, globs, URLs and Hugging Face datasets enter, documents leave, one at a time and in a fixed order."""

import glob
import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from data_pipelines.bounds import check_utf8
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.digest import file_hash, text_hash
from data_pipelines.text.hub import hub_revision, read_hub
from data_pipelines.text.lines import open_bytes, suffix_of
from data_pipelines.text.readers import MAX_CHARS, READERS, Piece, reader_of
from data_pipelines.text.stores import StoredFile, find_stored, is_url

if TYPE_CHECKING:
    from data_pipelines.text.repeats import SeenParagraphs

_HASHED_CHARS = MAX_CHARS // 8


class Document(NamedTuple):
    """A document, or a part of one that is too long to hold at once."""

    text: str
    place: str
    """file:line where it starts."""
    continued: bool
    """Whether it continues the document before it."""
    repeat: int
    """How often the document was given before, where its source has a weight above 1."""


class Source(NamedTuple):
    """One file or dataset of the corpus. Exactly one of `path` and `hub` is set."""

    name: str
    weight: float
    path: Path | StoredFile | None
    hub: str | None

    @property
    def files(self) -> list[Path | StoredFile]:
        """The files of the source, here or on a store; none for a dataset on the hub."""
        if self.path is not None:
            return [self.path]
        folder = Path((self.hub or "").partition(":")[0])
        return [path for path in sorted(folder.rglob("*")) if path.is_file()] if folder.is_dir() else []

    @property
    def size(self) -> int | None:
        """Bytes of the file; None for a dataset on the hub."""
        if self.path is None:
            return None
        return self.path.size if isinstance(self.path, StoredFile) else self.path.stat().st_size


def find_sources(config: CorpusConfig) -> list[Source]:
    """The sources that a corpus names, in order. Missing files are refused. Nothing is opened; only of URLs a store is
    asked what is there."""
    sources = []
    for entry in config.corpus:
        pattern, weight = _split_weight(entry)
        if pattern.startswith("hf:"):
            sources.append(Source(pattern, weight, None, pattern.removeprefix("hf:")))
            continue
        paths = _expand_url(pattern) if is_url(pattern) else [Path(path) for path in _expand(pattern)]
        for path in paths:
            check_utf8("the name of a file", str(path))
            reader_of(path)  # refuses a file that cannot be text
        sources += [Source(str(path), weight, path, None) for path in paths]
    if config.unique_paragraphs and any(source.weight > 1 for source in sources):
        raise ValueError("unique_paragraphs removes repeats, so it cannot be combined with a weight above 1")
    return sources


def read_documents(config: CorpusConfig) -> Iterator[Document]:
    """Every document of the corpus, in constant memory: long documents come in parts."""
    check_text(config)
    return read_sources(find_sources(config), config, new_memory(config))


def check_text(config: CorpusConfig) -> None:
    """Refuse a corpus of ids where text is needed."""
    if config.content != "text":
        raise ValueError("content=ids holds no text, which is needed here; only prepare and pretrain take token ids")


def new_memory(config: CorpusConfig) -> "SeenParagraphs | None":
    """What `read_sources` must remember from one source to the next; None where that is nothing."""
    if not config.unique_paragraphs:
        return None
    from data_pipelines.text.repeats import SeenParagraphs  # imports numpy; what find_sources refuses needs none

    return SeenParagraphs()


def read_sources(sources: Iterable[Source], config: CorpusConfig, seen: "SeenParagraphs | None") -> Iterator[Document]:
    """The documents of some sources of the corpus; ids come in the form of a text."""
    for source in sources:
        for repeat in range(_passes(source.weight)):
            begun = False
            for text, place, continued in _take_share(_pieces(source, config), source.weight - repeat):
                begun = begun and continued
                if seen is not None:
                    text = seen.remove_from(text)
                if text:
                    yield Document(text, place, begun, repeat)
                    begun = True


def corpus_bytes(config: CorpusConfig) -> int | None:
    """The size of the corpus as text: an estimate for compressed files, None for a dataset of unknown size."""
    total = 0.0
    for source in find_sources(config):
        if source.path is None or source.size is None:
            return None
        # English text shrinks to about a third: good enough for an estimate.
        expansion = 3.0 if source.path.suffix in (".gz", ".parquet") else 1.0
        total += source.size * expansion * source.weight
    return int(total)


def fingerprint_sources(config: CorpusConfig, known: Iterable[dict] = ()) -> list[dict]:
    """What identifies each source: name, size and sha256 of a file, name, size and version of one on a store, name and
    commit of a dataset on the hub.

    A file with the name, size and time that it has in `known` is not read again. Where the hub cannot be asked, or
    could not be asked then, the commit counts as unchanged.
    """
    entries: list[dict] = []
    before = iter(known)
    for source in find_sources(config):
        entries += [_file_entry(path, source.weight, next(before, {})) for path in source.files]
        if not source.files:
            entries.append(_hub_entry(source, next(before, {})))
    return entries


def version_of(path: Path | StoredFile) -> str:
    """What changes with a file, as far as can be known without reading it."""
    if isinstance(path, StoredFile):
        return f"{path.size} {path.version}"
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def check_unchanged(config: CorpusConfig, before: list[dict]) -> None:
    """Refuse a corpus if one of its files has changed since these fingerprints were taken."""
    none: dict = {}
    for old, new in zip_longest(before, fingerprint_sources(config, before), fillvalue=none):
        if {**old, "modified": 0} != {**new, "modified": 0}:
            name = (old or new)["name"]
            raise ValueError(f"{name} changed while it was read; wait until it is complete, and run again")


def document_hash(text: str, purpose: str) -> int:
    """64 bits of a document's start, by which it is chosen: the choice does not depend on the rest of the corpus.

    Where a very long line is cut depends on the text before it. So only as many characters count as every first part
    has.
    """
    return text_hash(text[:_HASHED_CHARS], purpose)


def _split_weight(entry: str) -> tuple[str, float]:
    name, _, text = entry.rpartition("@")
    try:
        weight = float(text)
    except ValueError:
        return entry, 1.0
    if not name or os.path.exists(entry):
        return entry, 1.0
    if not 0 < weight <= 1000:
        raise ValueError(f"the weight of {name!r} must be in (0, 1000], got {text}")
    return name, weight


def _expand(pattern: str) -> list[str]:
    path = Path(pattern).expanduser()
    if path.is_file():
        return [str(path)]
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file() and reader_of(file, exact=True)]
        found = sorted(map(str, without_indexes(files)))
        if not found:
            raise ValueError(f"the folder {pattern} holds no {' '.join(READERS)} file (nor one of them as .gz)")
        return found
    if path.exists():
        raise ValueError(
            f"{pattern} is neither a file nor a folder; a corpus is read several times, so save it as a file"
        )
    if glob.has_magic(pattern):
        found = sorted(file for file in glob.glob(str(path), recursive=True) if os.path.isfile(file))
        if found:
            return found
        raise ValueError(f"no file matches {pattern!r}")
    like_a_dataset = re.fullmatch(r"[\w-]+(/[\w.-]+)?", pattern)
    hint = f"; for the Hugging Face dataset of that name write hf:{pattern}" if like_a_dataset else ""
    raise ValueError(f"there is no file or folder {pattern!r}{hint}")


def _expand_url(url: str) -> list[StoredFile]:
    found = find_stored(url)
    if len(found) == 1 and found[0].url.rstrip("/") == url.rstrip("/"):
        return found
    texts = without_indexes([file for file in found if reader_of(file, exact=True)])
    if not texts:
        raise ValueError(f"{url} holds no {' '.join(READERS)} file (nor one of them as .gz)")
    return texts


def without_indexes(files: list[Any]) -> list[Any]:
    """Of a folder of MDS or Arrow shards the shards alone: the JSON files next to them describe them. Shards that an
    index.json names must be there."""
    shards = [file for file in files if suffix_of(file) in (".mds", ".arrow")]
    for index in [file for file in files if file.name == "index.json"] if shards else ():
        with open_bytes(index) as stream:
            named = json.load(stream).get("shards", [])
        here = {file.name for file in shards}
        for entry in named:
            forms = {entry[key]["basename"] for key in ("raw_data", "zip_data") if entry.get(key)}
            if forms and not forms & here:
                raise ValueError(f"{index} names {min(forms)}, which is not there; copy all shards")
    return shards or files


def _pieces(source: Source, config: CorpusConfig) -> Iterator[Piece]:
    if source.path is None:
        assert source.hub is not None
        return read_hub(source.hub, config)
    return reader_of(source.path)(source.path, config)


def _file_entry(path: Path | StoredFile, weight: float, before: dict) -> dict:
    if isinstance(path, StoredFile):
        return {"name": path.name, "weight": weight, "size": path.size, "version": path.version}
    status = path.stat()
    entry = {"name": path.name, "weight": weight, "size": status.st_size, "modified": status.st_mtime_ns}
    unchanged = entry.items() <= before.items()
    return entry | {"sha256": (unchanged and before.get("sha256")) or file_hash(path)}


def _hub_entry(source: Source, before: dict) -> dict:
    entry = {"name": source.name, "weight": source.weight}
    if entry == before:  # the hub could not be asked then
        return entry
    revision = hub_revision(source.hub or "") or (entry.items() <= before.items() and before.get("revision"))
    return entry | ({"revision": revision} if revision else {})


def _passes(weight: float) -> int:
    return int(weight) + (weight != int(weight))


def _take_share(pieces: Iterator[Piece], share: float) -> Iterator[Piece]:
    """The documents whose hash falls into the share; the parts of a document stay together."""
    bound = int(min(share, 1.0) * 2**64)
    taken = False
    for piece in pieces:
        if not piece.continued:
            taken = share >= 1 or document_hash(piece.text, "weight") < bound
        if taken:
            yield piece
