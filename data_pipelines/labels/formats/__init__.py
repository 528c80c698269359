"""Formats of labeled files: one file for each, one row for each suffix."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.sentence import Sentence
from data_pipelines.table import Table
from data_pipelines.text.lines import Line

Reader = Callable[[Iterable[Line], str, TaggedConfig, bool], Iterator[Sentence]]
"""Called with the lines of a file, its name, the settings, and whether tags must be there."""


class LabelFormat(NamedTuple):
    """One row of the table of label formats; None for what a format cannot hold."""

    sentences: Reader | None = None
    """Words with a tag each."""
    texts: Reader | None = None
    """Texts with one label each, each as one word with one tag."""


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
