"""A corpus in parts, for many workers: blocks of consecutive documents, the same ones however many parts there are."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import Document, Source, check_text, find_sources, new_memory, read_sources

BLOCK_CHARS = 1 << 23
"""A block ends with the document that brings it to this many characters, or with its group."""
_GROUP_BYTES = 1 << 24
"""Files are grouped until they have this many bytes, so that many small ones do not make many small blocks."""


class Part(NamedTuple):
    """Which share of the documents one worker has: part `number` (from 1) of `of`."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> "Part":
        match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"part must look like 3/16, the first at most the second, got {text!r}")
        return cls(int(match[1]), int(match[2]))

    @property
    def folder(self) -> str:
        return f"part-{self.number:05d}-of-{self.of:05d}"


WHOLE = Part()


class Block(NamedTuple):
    """The `number`-th block of a group of files; blocks in this order are the corpus in its order."""

    group: int
    number: int

    @property
    def name(self) -> str:
        return f"{self.group:05d}-{self.number:05d}"


def read_blocks(corpus: CorpusConfig, part: Part) -> Iterator[tuple[Block, list[Document]]]:
    """The blocks of one part, of its own files alone where it has some; else every part reads all files and skips the
    blocks of the others."""
    check_text(corpus)
    own_files = has_own_files(corpus, part)
    memory = new_memory(corpus)
    for group, sources in enumerate(_groups(find_sources(corpus))):
        if own_files and group % part.of != part.number - 1:
            continue
        for number, documents in enumerate(in_blocks(read_sources(sources, corpus, memory), BLOCK_CHARS)):
            if own_files or (group + number) % part.of == part.number - 1:
                yield Block(group, number), documents


def read_part(corpus: CorpusConfig, part: Part) -> Iterator[Document]:
    """The documents of one part: those of its own files where it has some, else every `of`-th one. The pieces of a long
    document stay together."""
    if has_own_files(corpus, part):
        for sources in _groups(find_sources(corpus))[part.number - 1 :: part.of]:
            yield from read_sources(sources, corpus, None)
        return
    place = -1
    for document in read_sources(find_sources(corpus), corpus, new_memory(corpus)):
        place += not document.continued
        if place % part.of == part.number - 1:
            yield document


def has_own_files(corpus: CorpusConfig, part: Part) -> bool:
    """Whether there are at least as many groups of files as parts, so that no part must read the files of another.
    Paragraphs that are to be unique are compared with those of all files."""
    return not corpus.unique_paragraphs and len(_groups(find_sources(corpus))) >= part.of


def _groups(sources: list[Source]) -> list[list[Source]]:
    """Neighbours together, by their sizes alone; a dataset on the hub, whose size is unknown, ends a group."""
    groups: list[list[Source]] = []
    size = float("inf")
    for source in sources:
        if size >= _GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(source)
        size += float("inf") if source.size is None else source.size
    return groups


def in_blocks(documents: Iterable[Document], num_chars: int) -> Iterator[list[Document]]:
    """Lists of documents, each with at least this many characters, except the last."""
    block: list[Document] = []
    size = 0
    for document in documents:
        block.append(document)
        size += len(document.text)
        if size >= num_chars:
            yield block
            block, size = [], 0
    if block:
        yield block
