"""Files or standard input to tags on standard output, in the same order, while the input is still being read."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Literal

from bertkit.finetune.predict.inputs import Part, kind_of
from bertkit.finetune.predict.outputs import Answer, Write
from bertkit.finetune.predict.standard_input import NAME, StandardInput
from bertkit.finetune.predict.tagger import Tagger
from bertkit.finetune.tasks.task import Task
from bertkit.terminal import Update, has_rich, progress_bar
from data_pipelines.text.encodings import UTF_8
from data_pipelines.text.lines import line_break, read_lines

Choose = Callable[[Iterable[Answer]], Iterator[Answer]]


def tag_files(
    tagger: Tagger,
    files: list[str],
    kind: str,
    output: str,
    encoding: str = UTF_8,
    errors: Literal["strict", "replace"] = "strict",
    choose: Choose = iter,
) -> None:
    """Tag files one after the other, or standard input, to standard output; `choose` says which answers are written.
    Lines end as those of the input do."""
    task, reading = tagger.task, tagger.reading
    reading = reading._replace(config=replace(reading.config, encoding=encoding, errors=errors))
    kinds = [kind_of(file, reading) if kind == "auto" else kind for file in files]
    kinds = kinds or ["text" if kind == "auto" else kind]
    if not files and kind == "spacy":
        raise ValueError("--input spacy is binary and not read from standard input; name its file")
    write = _writer(task, output, kinds)
    breaks = {line_break(Path(file), encoding) for file, kind in zip(files, kinds, strict=False) if kind != "spacy"}

    def parts_of(file: str, kind: str) -> Iterator[Part]:
        lines = read_lines(Path(file), errors, cut_long=False, encoding=encoding)
        if output == "brat" and breaks == {"\r\n"}:  # which marks places in the file as it is
            lines = (line._replace(text=f"{line.text}\r") for line in lines)
        return task.inputs(lines, file, kind, reading.of(kind))

    if files:
        _end_lines("\r\n" if breaks == {"\r\n"} else "\n")
        answers = tagger.answer_all(chain.from_iterable(map(parts_of, files, kinds)))
        with progress_bar("predicting") as update:
            write(choose(_counted(answers, update, task.examples)), reading)
    else:
        # Someone who types, or a program on the other side, wants an answer to every line before sending the next.
        stream = StandardInput(sys.stdin.buffer, before_waiting=sys.stdout.flush, line_break=_end_lines)
        parts = task.inputs(stream.lines(encoding, errors), NAME, kinds[0], reading.of(kinds[0]))
        parts = (part._replace(follows=False) for part in parts)  # none waits for its neighbours
        write(choose(tagger.answer_all(parts, must_wait=stream.must_wait)), reading)
    sys.stdout.flush()
    _end_lines(None)


def _end_lines(line_break: str | None) -> None:
    """What `print` ends lines with from now on; None: as the system does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(newline=line_break)


def _writer(task: Task, output: str, kinds: list[str]) -> Write:
    """The format that is asked for; else a view on a terminal, that of the files if they have one, or the task's."""
    if output == "auto":
        named = {"jsonl" if kind in ("json", "ndjson") else kind for kind in kinds}
        same = named.pop() if len(named) == 1 and named <= task.outputs.keys() else next(iter(task.outputs))
        output = "view" if sys.stdout.isatty() and has_rich() and "view" in task.outputs else same
    if output not in task.outputs:
        raise ValueError(f"--output {output}: this model's results are written as {', '.join(task.outputs)}")
    if output == "brat" and kinds != ["text"]:
        raise ValueError(
            f"--output brat refers to positions in one file of raw text, got {', '.join(kinds)}; tag one .txt file"
        )
    if output == "spacy" and sys.stdout.isatty():
        raise ValueError("--output spacy is binary; send it to a file: > tagged.spacy")
    return task.outputs[output]


def _counted(answers: Iterable[Answer], update: Update, what: str) -> Iterator[Answer]:
    for number, answer in enumerate(answers, start=1):
        yield answer
        if number % 256 == 0:
            update(number, None, f"{number:,} {what}")
