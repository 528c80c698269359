"""Files or standard input to tags on standard output, in the same order, while the input is still being read."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bertkit.finetune.predict.inputs import format_of
from bertkit.finetune.predict.standard_input import NAME, StandardInput
from bertkit.finetune.predict.tagger import Tagger
from bertkit.terminal import Update, progress_bar
from data_pipelines.text.lines import read_lines


def tag_files(tagger: Tagger, files: list[str], kind: str, output: str) -> None:
    """Tag files one after the other, or standard input, to standard output."""
    task = tagger.task
    if output == "auto":
        output = "view" if sys.stdout.isatty() and "view" in task.outputs else next(iter(task.outputs))
    if output not in task.outputs:
        raise ValueError(f"--output {output}: this model's results are written as {', '.join(task.outputs)}")
    write = task.outputs[output]

    def inputs_of(file: str) -> Iterator[Any]:
        lines = read_lines(Path(file), "strict", cut_long=False)
        return task.inputs(lines, file, format_of(file) if kind == "auto" else kind)

    if files:
        results = tagger.tag_all(given for file in files for given in inputs_of(file))
        with progress_bar("tagging") as update:
            write(_counted(results, update, task.examples))
    else:
        # Someone who types, or a program on the other side, wants an answer to every line before sending the next.
        stream = StandardInput(sys.stdin.buffer, before_waiting=sys.stdout.flush)
        inputs = task.inputs(stream.lines(), NAME, "text" if kind == "auto" else kind)
        write(tagger.tag_all(inputs, must_wait=stream.must_wait))
    sys.stdout.flush()


def _counted(results: Iterable[Any], update: Update, what: str) -> Iterator[Any]:
    for number, result in enumerate(results, start=1):
        yield result
        if number % 256 == 0:
            update(number, None, f"{number:,} {what}")
