"""Labeled sentences and a start to the rows on which all seeds train and are scored, and the number of steps."""

import math
from pathlib import Path
from typing import Any, NamedTuple

from accelerate import Accelerator

from bertkit.config.finetune import LabeledSection, TuneSection
from bertkit.finetune.labeled import CONTEXT, Labeled
from bertkit.finetune.start import Start
from bertkit.finetune.tasks.task import Task
from bertkit.finetune.windows import Row, RowForm, WordEncoder, documents, joined, joined_rows
from bertkit.run.folder import read_facts, write_facts
from bertkit.run.ranks import agree_on, rounding_facts
from data_pipelines.labels.sentence import Sentence


class TuningData(NamedTuple):
    """What the trainings of all seeds share."""

    task: Task
    labeled: Labeled
    start: Start
    form: RowForm
    rows: dict[str, list[Row]]
    """Of train, dev and test."""

    def sentences(self, part: str) -> list[Sentence]:
        return getattr(self.labeled, part)

    @property
    def sentences_per_row(self) -> float:
        """How many sentences a training row answers for, where they see their neighbours; else one."""
        return max(len(self.labeled.train) / max(len(self.rows["train"]), 1), 1.0) if self.form.context else 1.0


class Steps(NamedTuple):
    """How a run goes through its rows: fixed when it begins."""

    batch: int
    total: int


def make_tuning_data(task: Task, labeled: Labeled, start: Start, section: LabeledSection) -> TuningData:
    """Words to subwords to rows, once for all seeds."""
    encode = WordEncoder(start.tokenizer)
    form = RowForm.of(start.tokenizer, start.config, section.max_length, section.stride)
    form = form._replace(context=CONTEXT in labeled.settings, all_subwords=section.pieces == "mean")
    task = task.bound(task, start.tokenizer, form, labeled.settings)
    number = {label: index for index, label in enumerate(labeled.labels)}
    train = task.rows(labeled.train, encode, form)
    if task.pools_windows:
        train = joined_rows(train)
    examples = {each.start: joined(labeled.train[each.start : each.stop]) for each in documents(labeled.train, form)}
    rows = {
        "train": [
            row._replace(target_M=task.targets(row, examples[row.sentence], number, labeled.settings)) for row in train
        ],
        "dev": task.rows(labeled.dev, encode, form),
        "test": task.rows(labeled.test, encode, form),
    }
    return TuningData(task, labeled, start, form, rows)


def fix_steps(
    folder: Path, facts: dict[str, Any], data: TuningData, section: TuneSection, accelerator: Accelerator
) -> Steps:
    """The steps as the run's folder has them beside its other facts; a new run counts them and writes all there."""
    known = agree_on(accelerator, read_facts(folder))
    if known is None:
        ranks, num_rows = accelerator.num_processes, len(data.rows["train"])
        # A step of more rows than there are would show one sentence twice; few sentences make small steps.
        wanted = min(math.ceil(section.global_batch / data.sentences_per_row), num_rows)
        batch = min(section.global_batch, math.ceil(wanted / ranks) * ranks)
        total_steps = math.ceil(section.epochs * num_rows / batch)
        known = {**facts, "batch": batch, "total_steps": total_steps, **rounding_facts(accelerator)}
        if accelerator.is_main_process:
            write_facts(folder, known)
    return Steps(int(known["batch"]), int(known["total_steps"]))
