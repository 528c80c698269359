"""Lines of a file or stream to what a tagger takes: texts, or lists of words. Labels that are there are ignored."""

from collections.abc import Iterable, Iterator

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import FORMATS, LabelFormat
from data_pipelines.labels.formats.json_lines import json_records
from data_pipelines.text.lines import Line, suffix_of


def format_of(file: str) -> str:
    """The format that a file's name tells; text where it tells none."""
    suffix = suffix_of(file)
    if suffix not in FORMATS:
        return "text"
    return "jsonl" if FORMATS[suffix] is FORMATS[".jsonl"] else suffix[1:]


def word_inputs(lines: Iterable[Line], source: str, kind: str) -> Iterator[str | list[str]]:
    """Of raw text every line that is not blank; of other formats the words of their sentences."""
    if kind == "jsonl":
        return _json_inputs(lines, source)
    read = _label_format(kind).sentences
    if read is None:
        return (line.text for line in lines if line.text.strip())
    return (sentence.words for sentence in read(lines, source, TaggedConfig(), False))


def text_inputs(lines: Iterable[Line], source: str, kind: str) -> Iterator[str | list[str]]:
    """Of raw text every line that is not blank; of other formats their texts."""
    if kind in ("text", "jsonl"):
        return word_inputs(lines, source, kind)
    read = _label_format(kind).texts
    if read is None:
        raise ValueError(f"{source}: this model gives a label to a text, but {kind} holds words")
    return (text.words[0] for text in read(lines, source, TaggedConfig(), False))


def _label_format(kind: str) -> LabelFormat:
    return LabelFormat() if kind == "text" else FORMATS[f".{kind}"]


def _json_inputs(lines: Iterable[Line], source: str) -> Iterator[str | list[str]]:
    """The words of a record where it has them, else its text."""
    for record, number in json_records(lines, source):
        given = next((record[key] for key in ("tokens", "words", "text") if key in record), None)
        if not isinstance(given, str) and not (isinstance(given, list) and all(isinstance(w, str) for w in given)):
            raise ValueError(f"{source}:{number}: expected tokens (a list of words) or a text")
        yield given
