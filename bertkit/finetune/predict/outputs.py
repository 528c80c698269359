"""Results to files: in the format of the input with nothing but the tags changed, or in another one."""

import csv
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from bertkit.finetune.predict.inputs import Part, Reading
from bertkit.finetune.predict.tagging import Tagging
from bertkit.terminal import printable
from data_pipelines.labels.formats import format_named
from data_pipelines.labels.placing import spans_by_place
from data_pipelines.labels.records import label_key, relabeled
from data_pipelines.labels.schemes import OUTSIDE
from data_pipelines.labels.sentence import Sentence

_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class Answer(NamedTuple):
    """A part of the input with its result; None where there was nothing to tag."""

    part: Part
    result: Any


Write = Callable[[Iterable[Answer], Reading], None]


def write_rows(answers: Iterable[Answer], reading: Reading, name: str) -> None:
    """A word a line. Lines of a file of the same format come back as they were, with the tags in their column."""
    form = format_named(name)
    assert form.write is not None
    for part, result in answers:
        if part.form is not None and part.form.filler is form.filler:
            for line in part.fill([] if result is None else result.tags):
                print(line)
        elif result is not None and (result.words or not isinstance(part.given, str)):
            _emit(form.write([_sentence(part, result)], reading.of(name).config))


def write_file(answers: Iterable[Answer], reading: Reading, name: str, texts: bool = False) -> None:
    """Whatever the format makes of all sentences."""
    form = format_named(name)
    write = form.write_texts if texts else form.write
    assert write is not None
    _emit(write((_sentence(part, result) for part, result in answers if result is not None), reading.of(name).config))


def write_json(answers: Iterable[Answer], reading: Reading) -> None:
    """JSON Lines, whatever the results are, by their `to_json`. Other fields that a record had are kept, and so are
    blank lines; a blank line of text is an object without words."""
    for part, result in answers:
        if result is not None:
            kept = {} if part.record is None else relabeled(part.record, _sentence(part, result), reading.config)
            found = result.to_json()
            print(
                json.dumps({**kept, **found, "spans": _merged(kept.get("spans"), found["spans"])}, ensure_ascii=False)
            )
        elif part.form is None:
            print(json.dumps(Tagging([], [], [], "", []).to_json()))
        elif part.form.records:
            print(*part.fill([]), sep="\n")


def _merged(old: Any, spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The spans, each with what else an old one at its place holds."""
    before = spans_by_place(old)
    return [{**before.get((span["start"], span["end"]), {}), **span} if "start" in span else span for span in spans]


def write_table(answers: Iterable[Answer], reading: Reading, delimiter: str) -> None:
    """CSV or TSV: a row for each text and a header line. Records keep their other columns; without a column of labels
    they get one."""

    def row(part: Part, result: Tagging) -> dict[str, Any]:
        record = {"text": result.text} if part.record is None else part.record
        return {**record, label_key(record, reading.config): result.tags[0]}

    write_values(((part.place, row(part, result)) for part, result in answers if result is not None), delimiter)


def write_values(rows: Iterable[tuple[str, dict[str, Any]]], delimiter: str) -> None:
    """A table of rows, each with the place where it was read."""
    table: csv.DictWriter[str] | None = None
    for place, values in rows:
        if table is None:
            table = csv.DictWriter(sys.stdout, list(values), delimiter=delimiter, lineterminator="\n")
            table.writeheader()
        elif list(values) != table.fieldnames:
            raise ValueError(f"{place}: other columns than those of the first row; tag such files one by one")
        table.writerow(values)


def write_view(answers: Iterable[Answer], reading: Reading) -> None:
    """Text with its spans in colour, the kind behind each; plain tags behind every word."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    colors: dict[str, str] = {}

    def color(kind: str) -> str:
        return colors.setdefault(kind, _COLORS[len(colors) % len(_COLORS)])

    for _, tagging in answers:
        if tagging is None or not tagging.words:
            continue
        spans = tagging.spans
        span_of = {index: span for span in spans for index in range(span.start, span.end)}
        text = Text()
        for index, (word, tag) in enumerate(zip(tagging.words, tagging.tags, strict=True)):
            span = span_of.get(index)
            text.append(" " if index else "")
            text.append(printable(word), style=color(span.kind) if span else "")
            if span and index == span.end - 1:
                text.append(f" {printable(span.kind)}", style=f"dim {color(span.kind)}")
            elif not spans and tag != OUTSIDE:
                text.append(f" {printable(tag)}", style=f"dim {color(tag)}")
        console.print(text)


OUTPUTS: dict[str, Write] = {
    **{name: partial(write_rows, name=name) for name in ("conll", "conllu")},
    "jsonl": write_json,
    **{name: partial(write_file, name=name) for name in ("spans", "doccano", "label-studio", "brat", "spacy")},
    "view": write_view,
}
TEXT_OUTPUTS: dict[str, Write] = {
    "conll": OUTPUTS["conll"],
    "jsonl": write_json,
    "csv": partial(write_table, delimiter=","),
    "tsv": partial(write_table, delimiter="\t"),
    **{name: partial(write_file, name=name, texts=True) for name in ("doccano", "label-studio")},
    "view": write_view,
}


def _emit(pieces: Iterable[str | bytes]) -> None:
    for piece in pieces:
        if isinstance(piece, bytes):
            sys.stdout.flush()
            sys.stdout.buffer.write(piece)
        else:
            print(piece, end="")


def _sentence(part: Part, result: Tagging) -> Sentence:
    text = part.text if result.text is None else result.text
    scores = result.span_confidences
    return Sentence(result.words, result.tags, "", [], text, result.offsets, part.record, scores, native=part.native)
