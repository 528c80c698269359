"""Files or a stream enter, tagged words leave in the same order while the input is still being read."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bertkit.finetune.predict import Tagger, Tagging
from bertkit.finetune.standard_input import NAME, StandardInput
from bertkit.terminal import progress_bar
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import json_records, read_columns, read_conllu
from data_pipelines.text.readers import Line, read_lines

_BY_SUFFIX = {
    ".conll": "conll",
    ".tsv": "conll",
    ".iob": "conll",
    ".bio": "conll",
    ".conllu": "conllu",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
}
_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")


def tag_files(model: str, files: list[str], kind: str, output: str, device: str) -> None:
    """Tag files one after the other, or standard input, to standard output."""
    tagger = Tagger.load(model, device)
    if output == "auto":
        output = "view" if sys.stdout.isatty() else "conll"
    write = _writer(output)
    if files:
        taggings = tagger.tag_all(sentence for file in files for sentence in _sentences_of_file(file, kind))
    else:
        # Someone who types, or a program on the other side, wants an answer to every line before sending the next.
        stream = StandardInput(sys.stdin.buffer, before_waiting=sys.stdout.flush)
        taggings = tagger.tag_all(_sentences(stream.lines(), NAME, kind), must_wait=stream.must_wait)
    with progress_bar("tagging") if files else nullcontext(lambda done, total, note: None) as update:
        words = 0
        for number, tagging in enumerate(taggings, start=1):
            write(tagging)
            words += len(tagging.words)
            if number % 256 == 0:
                update(words, None, f"{words:,} words")
    sys.stdout.flush()


def _sentences_of_file(file: str, kind: str) -> Iterator[str | list[str]]:
    if kind == "auto":
        kind = _BY_SUFFIX.get(Path(file.removesuffix(".gz")).suffix.lower(), "text")
    return _sentences(read_lines(Path(file), "strict", cut_long=False), file, kind)


def _sentences(lines: Iterable[Line], source: str, kind: str) -> Iterator[str | list[str]]:
    """Texts or lists of words, as the input has them."""
    config = TaggedConfig()
    if kind in ("auto", "text"):
        yield from (line.text for line in lines if line.text.strip())
    elif kind == "jsonl":
        yield from _json_inputs(lines, source)
    else:
        read = read_conllu if kind == "conllu" else read_columns
        yield from (sentence.words for sentence in read(lines, source, config, tagged=False))


def _json_inputs(lines: Iterable[Line], source: str) -> Iterator[str | list[str]]:
    """Words where a record has them; else its text, which is split as the training data was."""
    for record, number in json_records(lines, source):
        given = next((record[key] for key in ("tokens", "words", "text") if key in record), None)
        if not isinstance(given, str) and not (isinstance(given, list) and all(isinstance(w, str) for w in given)):
            raise ValueError(f"{source}:{number}: expected tokens (a list of words) or a text")
        yield given


def _writer(output: str) -> Callable[[Tagging], Any]:
    if output == "jsonl":
        return lambda tagging: print(json.dumps(tagging.to_json(), ensure_ascii=False))
    if output == "view":
        return _View().show
    return lambda tagging: print("".join(map(_column_line, tagging.words, tagging.tags)))


def _column_line(word: str, tag: str) -> str:
    """One word a line, always: what would break the line or the columns becomes a space."""
    return f"{' '.join(word.splitlines() or ['']).replace(chr(9), ' ')}\t{tag}\n"


class _View:
    """Text with its spans in colour, the kind behind each; plain tags behind every word."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(soft_wrap=True, highlight=False)
        self._colors: dict[str, str] = {}

    def show(self, tagging: Tagging) -> None:
        from rich.text import Text

        spans = tagging.spans
        kind_of = {index: span for span in spans for index in range(span.start, span.end)}
        text = Text()
        for index, (word, tag) in enumerate(zip(tagging.words, tagging.tags, strict=True)):
            span = kind_of.get(index)
            text.append(" " if index else "")
            text.append(_visible(word), style=self._color(span.kind) if span else "")
            if span and index == span.end - 1:
                text.append(f" {_visible(span.kind)}", style=f"dim {self._color(span.kind)}")
            elif not spans and tag != "O":
                text.append(f" {_visible(tag)}", style=f"dim {self._color(tag)}")
        self._console.print(text)

    def _color(self, kind: str) -> str:
        return self._colors.setdefault(kind, _COLORS[len(self._colors) % len(_COLORS)])


def _visible(text: str) -> str:
    """Control codes in somebody's text, or among a model's labels, are shown, not obeyed."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
