"""brat: spans in an .ann file, by their places in the .txt file next to it, whose lines are sentences."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.placing import character_spans, placed
from data_pipelines.labels.sentence import Record, Sentence
from data_pipelines.text.lines import Line

_SPAN = re.compile(r"T[^\t]*\t(\S+) (\d+ \d+(?:;\d+ \d+)*)\t(.*)")


class _Span(NamedTuple):
    start: int
    end: int
    kind: str
    said: str
    """The words as the .ann file repeats them."""
    line: int


def brat_records(lines: Iterable[Line], source: str, config: TaggedConfig) -> Iterator[Record]:
    """A text with its spans for each line of the text; a span over the end of a line joins the two. Other marks than
    spans are left alone."""
    spans = sorted(_spans(lines, source))
    text = _text_beside(source, spans, config)
    start = index = 0
    for number, end in enumerate([*(match.start() for match in re.finditer("\n", text)), len(text)], start=1):
        inside = index
        while inside < len(spans) and spans[inside].start < end:
            inside += 1
        if any(span.end > end for span in spans[index:inside]):
            continue
        here = spans[index:inside]
        marks = [[span.start - start, span.end - start, span.kind] for span in here]
        yield {"text": text[start:end], "spans": marks}, here[0].line if here else number
        start, index = end + 1, inside


def write_brat(sentences: Iterable[Sentence], config: TaggedConfig) -> Iterator[str]:
    """The .ann file to a text file whose lines the sentences are."""
    at, number = 0, 0
    for sentence in map(placed, sentences):
        text = sentence.text or ""
        for start, end, kind, _ in character_spans(sentence):
            if re.search(r"\s", kind):
                raise ValueError(
                    f"brat does not allow spaces in a label, such as {kind!r}; write spans or doccano instead"
                )
            number += 1
            yield f"T{number}\t{kind} {at + start} {at + end}\t{text[start:end]}\n"
        at += len(text) + 1


def _spans(lines: Iterable[Line], source: str) -> Iterator[_Span]:
    for text, number, _ in lines:
        if not text.startswith("T"):
            continue
        found = _SPAN.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{source}:{number}: expected T1, a tab, KIND START END, a tab and the words, got {text!r}"
            )
        ends = [int(end) for end in re.split("[ ;]", found[2])]
        yield _Span(ends[0], ends[-1], found[1], found[3], number)


def _text_beside(source: str, spans: list[_Span], config: TaggedConfig) -> str:
    """The text that the spans mark: they must quote it exactly. A line break counts as it is written,
    two characters in a file of Windows, or as one."""
    path = Path(source.removesuffix(".gz")).with_suffix(".txt")
    if not path.is_file():
        raise ValueError(f"{source} refers to {path.name}, which is not in the same folder")
    try:
        written = path.read_bytes().decode(config.encoding, config.errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: not {config.encoding} ({error.reason}); name its encoding (--encoding NAME or data.encoding=NAME)"
        ) from None
    texts = (written, written.replace("\r\n", "\n"), written.removeprefix("\ufeff"))
    wrong = [[span for span in spans if _flat(text[span.start : span.end]) != _flat(span.said)] for text in texts]
    for text, odd in zip(texts, wrong, strict=True):
        if not odd:
            return text
    span = wrong[0][0]
    there = written[span.start : span.end]
    raise ValueError(
        f"{source}:{span.line}: {path.name} has {there!r} from {span.start} to {span.end}, not {span.said!r}; "
        "discontinuous spans are not supported"
    )


def _flat(text: str) -> str:
    return " ".join(text.split())


BRAT = LabelFormat(records=brat_records, write=write_brat)
