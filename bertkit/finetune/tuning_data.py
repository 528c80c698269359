"""Labeled sentences and a start to the rows on which all seeds train and are scored, and the number of steps."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from bertkit.config.finetune import LabeledSection, TuneSection
from bertkit.finetune.labeled import Labeled
from bertkit.finetune.start import Start
from bertkit.finetune.tasks.task import Task
from bertkit.finetune.windows import Row, RowForm, WordEncoder, joined_rows
from bertkit.run.folder import read_facts, write_facts
from bertkit.run.ranks import agree_on
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


class Steps(NamedTuple):
    """How a run goes through its rows: fixed when it begins."""

    batch: int
    total: int


def make_tuning_data(task: Task, labeled: Labeled, start: Start, section: LabeledSection) -> TuningData:
    """Words to subwords to rows, once for all seeds."""
    encode = WordEncoder(start.tokenizer)
    form = RowForm.of(start.tokenizer, start.config, section.max_length, section.stride)
    learnt = form._replace(all_subwords=section.pieces == "all")
    number = {label: index for index, label in enumerate(labeled.labels)}
    train = task.rows(labeled.train, encode, learnt)
    if task.pools_windows:
        train = joined_rows(train, section.train_windows)
    rows = {
        "train": [
            row._replace(target_M=task.targets(row, labeled.train[row.sentence], number, labeled.settings))
            for row in train
        ],
        "dev": task.rows(labeled.dev, encode, form),
        "test": task.rows(labeled.test, encode, form),
    }
    return TuningData(task, labeled, start, form, rows)


def fix_steps(
    folder: Path, facts: dict[str, Any], num_rows: int, section: TuneSection, accelerator: Accelerator
) -> Steps:
    """The steps as the run's folder has them beside its other facts; a new run counts them and writes all there."""
    known = agree_on(accelerator, read_facts(folder))
    if known is None:
        ranks = accelerator.num_processes
        # A step of more rows than there are would show one sentence twice; few sentences make small steps.
        batch = min(section.global_batch, math.ceil(num_rows / ranks) * ranks)
        total_steps, threads = math.ceil(section.epochs * num_rows / batch), torch.get_num_threads()
        known = {**facts, "batch": batch, "total_steps": total_steps, "threads": threads}
        if accelerator.is_main_process:
            write_facts(folder, known)
    return Steps(int(known["batch"]), int(known["total_steps"]))
