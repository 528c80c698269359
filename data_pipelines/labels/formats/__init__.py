"""Formats of labeled files: one file for each, one row for each suffix."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.sentence import Record, Sentence
from data_pipelines.table import Table
from data_pipelines.text.lines import Line


class LabelFormat(NamedTuple):
    """One row of the table: how the lines of a file are read. One of the two is enough."""

    sentences: Callable[[Iterable[Line], str, TaggedConfig, bool], Iterator[Sentence]] | None = None
    """Lines, file name, settings, and whether tags must be there, to words with tags."""
    records: Callable[[Iterable[Line], str], Iterator[Record]] | None = None
    """Lines and file name to records, each with words and tags, a text and spans, or a text and a label."""


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
    },
)
