"""Files or standard input to tags on standard output, in the same order, while the input is still being read."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from bertkit.finetune.predict.inputs import Part, kind_of
from bertkit.finetune.predict.outputs import Answer, Write
from bertkit.finetune.predict.standard_input import NAME, StandardInput
from bertkit.finetune.predict.tagger import Tagger
from bertkit.finetune.tasks.task import Task
from bertkit.terminal import Update, has_rich, progress_bar
from data_pipelines.text.encodings import UTF_8
from data_pipelines.text.lines import read_lines

Choose = Callable[[Iterable[Answer]], Iterator[Answer]]


def tag_files(
    tagger: Tagger,
    files: list[str],
    kind: str,
    output: str,
    encoding: str = UTF_8,
    errors: str = "strict",
    choose: Choose = iter,
) -> None:
    """Tag files one after the other, or standard input, to standard output; `choose` says which answers are written."""
    task, reading = tagger.task, tagger.reading
    reading = reading._replace(config=replace(reading.config, encoding=encoding))
    kinds = [kind_of(file, reading) if kind == "auto" else kind for file in files]
    kinds = kinds or ["text" if kind == "auto" else kind]
    write = _writer(task, output, kinds)

    def parts_of(file: str, kind: str) -> Iterator[Part]:
        lines = read_lines(Path(file), errors, cut_long=False, encoding=encoding)
        return task.inputs(lines, file, kind, reading)

    if files:
        answers = tagger.answer_all(chain.from_iterable(map(parts_of, files, kinds)))
        with progress_bar("tagging") as update:
            write(choose(_counted(answers, update, task.examples)), reading)
    else:
        # Someone who types, or a program on the other side, wants an answer to every line before sending the next.
        stream = StandardInput(sys.stdin.buffer, before_waiting=sys.stdout.flush)
        parts = task.inputs(stream.lines(encoding, errors), NAME, kinds[0], reading)
        parts = (part._replace(follows=False) for part in parts)  # none waits for its neighbours
        write(choose(tagger.answer_all(parts, must_wait=stream.must_wait)), reading)
    sys.stdout.flush()


def _writer(task: Task, output: str, kinds: list[str]) -> Write:
    """The format that is asked for; else a view on a terminal, that of the files if they have one, or the task's."""
    if output == "auto":
        same = kinds[0] if len(set(kinds)) == 1 and kinds[0] in task.outputs else next(iter(task.outputs))
        output = "view" if sys.stdout.isatty() and has_rich() and "view" in task.outputs else same
    if output not in task.outputs:
        raise ValueError(f"--output {output}: this model's results are written as {', '.join(task.outputs)}")
    if output == "brat" and kinds != ["text"]:
        raise ValueError(
            f"--output brat marks places in one file of raw text, got {', '.join(kinds)}; tag one .txt file"
        )
    if output == "spacy" and sys.stdout.isatty():
        raise ValueError("--output spacy is binary; send it to a file: > tagged.spacy")
    return task.outputs[output]


def _counted(answers: Iterable[Answer], update: Update, what: str) -> Iterator[Answer]:
    for number, answer in enumerate(answers, start=1):
        yield answer
        if number % 256 == 0:
            update(number, None, f"{number:,} {what}")
