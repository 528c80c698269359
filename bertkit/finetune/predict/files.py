"""Files or standard input to tags on standard output, in the same order, while the input is still being read."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bertkit.finetune.predict.standard_input import NAME, StandardInput
from bertkit.finetune.predict.tagger import Tagger
from bertkit.terminal import Update, progress_bar
from data_pipelines.text.lines import read_lines

Value = TypeVar("Value")

_BY_SUFFIX = {
    **dict.fromkeys((".conll", ".tsv", ".iob", ".bio"), "conll"),
    ".conllu": "conllu",
    **dict.fromkeys((".jsonl", ".json", ".ndjson"), "jsonl"),
}


def tag_files(model: str, files: list[str], kind: str, output: str, device: str) -> None:
    """Tag files one after the other, or standard input, to standard output."""
    tagger = Tagger.load(model, device)
    task = tagger.task
    usual = "view" if sys.stdout.isatty() and "view" in task.outputs else next(iter(task.outputs))
    write = _format(task.outputs, "--output", usual if output == "auto" else output)

    def inputs_of(file: str) -> Iterator[Any]:
        by_name = _BY_SUFFIX.get(Path(file.removesuffix(".gz")).suffix.lower(), "text")
        read = _format(task.inputs, "--input", by_name if kind == "auto" else kind, file)
        return read(read_lines(Path(file), "strict", cut_long=False), file)

    if files:
        results = tagger.tag_all(given for file in files for given in inputs_of(file))
        with progress_bar("tagging") as update:
            write(_counted(results, update, task.examples))
    else:
        # Someone who types, or a program on the other side, wants an answer to every line before sending the next.
        stream = StandardInput(sys.stdin.buffer, before_waiting=sys.stdout.flush)
        read = _format(task.inputs, "--input", "text" if kind == "auto" else kind, NAME)
        write(tagger.tag_all(read(stream.lines(), NAME), must_wait=stream.must_wait))
    sys.stdout.flush()


def _format(formats: Mapping[str, Value], flag: str, name: str, source: str = "") -> Value:
    if name not in formats:
        where = f"{source}: " if source else ""
        raise ValueError(f"{where}{flag} {name} does not fit this model; it takes {', '.join(formats)}")
    return formats[name]


def _counted(results: Iterable[Value], update: Update, what: str) -> Iterator[Value]:
    for number, result in enumerate(results, start=1):
        yield result
        if number % 256 == 0:
            update(number, None, f"{number:,} {what}")
