"""Lines of a file or stream to what a tagger takes: texts, or lists of words. Labels that are there are ignored."""

from collections.abc import Iterable, Iterator

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import FORMATS
from data_pipelines.labels.sentence import Record
from data_pipelines.text.lines import Line, suffix_of

Given = str | list[str]


def format_of(file: str) -> str:
    """The format that a file's name tells; text where it tells none."""
    suffix = suffix_of(file)
    return suffix[1:] if suffix in FORMATS else "text"


def word_inputs(lines: Iterable[Line], source: str, kind: str) -> Iterator[Given]:
    """The words of labeled sentences, or what records hold. Text is a line each, and so is CSV, which is seldom words
    in columns."""
    if kind in ("text", "csv"):
        return _text_lines(lines)
    found = FORMATS[f".{kind}"]
    if found.sentences:
        return (sentence.words for sentence in found.sentences(lines, source, TaggedConfig(), False))
    assert found.records is not None
    return _of_records(found.records(lines, source), source)


def text_inputs(lines: Iterable[Line], source: str, kind: str) -> Iterator[Given]:
    """A text a line, or those that records hold."""
    if kind == "text":
        return _text_lines(lines)
    records = FORMATS[f".{kind}"].records
    if records is None:
        raise ValueError(f"{source}: this model gives a label to a text, but {kind} holds words")
    return _of_records(records(lines, source), source)


def _text_lines(lines: Iterable[Line]) -> Iterator[Given]:
    return (line.text for line in lines if line.text.strip())


def _of_records(records: Iterable[Record], source: str) -> Iterator[Given]:
    """The words of a record where it has them, else its text."""
    for record, number in records:
        given = next((record[key] for key in ("tokens", "words", "text") if key in record), None)
        if not isinstance(given, str) and not (isinstance(given, list) and all(isinstance(w, str) for w in given)):
            raise ValueError(f"{source}:{number}: expected tokens (a list of words) or a text")
        yield given
