"""Formats of labeled files: one file for each idea, one row for each suffix, or name where several share a suffix."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.sentence import Record, Sentence
from data_pipelines.table import Table
from data_pipelines.text.lines import Line

Fill = Callable[[Sequence[Line], Sentence], Iterator[str]]
"""The lines of a sentence as in their file, with the tags of the sentence instead of theirs."""


class LabelFormat(NamedTuple):
    """One row of the table: how the lines of a file are read, by one of the first two, and how they are written."""

    sentences: Callable[[Iterable[Line], str, TaggedConfig, bool], Iterator[Sentence]] | None = None
    """Lines, file name, settings, and whether tags must be there, to words with tags."""
    records: Callable[[Iterable[Line], str, TaggedConfig], Iterator[Record]] | None = None
    """Lines, file name and settings to records, each with words and tags, a text and spans, or a text and a label."""
    filler: Callable[[TaggedConfig, Collection[str]], Fill] | None = None
    """For a file to be tagged: its settings and the labels that it may hold already."""
    write: Callable[[Iterable[Sentence], TaggedConfig], Iterator[str | bytes]] | None = None
    """Sentences with tags to a file of this format."""
    write_texts: Callable[[Iterable[Sentence], TaggedConfig], Iterator[str | bytes]] | None = None
    """Texts with one label each to a file of this format."""
    usual_column: Callable[[Collection[str]], str] | None = None
    """The tag_column of such tags, where it depends on them."""


_CONLL = "data_pipelines.labels.formats.conll:CONLL"
_JSON_LINES = "data_pipelines.labels.formats.json_lines:JSON_LINES"
FORMATS: Table[LabelFormat] = Table(
    "label format",
    {
        ".conll": _CONLL,
        ".iob": _CONLL,
        ".bio": _CONLL,
        ".conllu": "data_pipelines.labels.formats.conllu:CONLLU",
        ".jsonl": _JSON_LINES,
        ".json": _JSON_LINES,
        ".ndjson": _JSON_LINES,
        ".csv": "data_pipelines.labels.formats.delimited:CSV",
        ".tsv": "data_pipelines.labels.formats.delimited:TSV",
        ".ann": "data_pipelines.labels.formats.brat:BRAT",
        ".spacy": "data_pipelines.labels.formats.spacy_docs:SPACY",
        "spans": "data_pipelines.labels.formats.json_spans:SPANS",
        "doccano": "data_pipelines.labels.formats.json_spans:DOCCANO",
        "label-studio": "data_pipelines.labels.formats.label_studio:LABEL_STUDIO",
        "brat": "data_pipelines.labels.formats.brat:BRAT",
    },
)


def have_columns_alike(first: LabelFormat, second: LabelFormat) -> bool:
    """Whether columns or keys that are named for files of one format hold for those of the other."""
    return first.sentences is second.sentences or (first.records is not None and second.records is not None)


def format_named(name: str) -> LabelFormat:
    """The row of a name as users type it: a suffix without its dot, or a name."""
    return FORMATS[name if name in FORMATS else f".{name}"]
