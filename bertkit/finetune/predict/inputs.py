"""Lines of a file or stream to what a tagger takes, one function for each format: texts, or lists of words."""

from collections.abc import Iterable, Iterator

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats.conll import read_columns
from data_pipelines.labels.formats.conllu import read_conllu
from data_pipelines.labels.formats.json_lines import json_records
from data_pipelines.text.lines import Line


def text_inputs(lines: Iterable[Line], source: str) -> Iterator[str]:
    """Every line that is not blank."""
    return (line.text for line in lines if line.text.strip())


def json_inputs(lines: Iterable[Line], source: str) -> Iterator[str | list[str]]:
    """The words of a record where it has them, else its text."""
    for record, number in json_records(lines, source):
        given = next((record[key] for key in ("tokens", "words", "text") if key in record), None)
        if not isinstance(given, str) and not (isinstance(given, list) and all(isinstance(w, str) for w in given)):
            raise ValueError(f"{source}:{number}: expected tokens (a list of words) or a text")
        yield given


def column_inputs(lines: Iterable[Line], source: str) -> Iterator[list[str]]:
    return (sentence.words for sentence in read_columns(lines, source, TaggedConfig(), tagged=False))


def conllu_inputs(lines: Iterable[Line], source: str) -> Iterator[list[str]]:
    return (sentence.words for sentence in read_conllu(lines, source, TaggedConfig(), tagged=False))
