"""Labeled sentences and a start enter; the rows that all seeds train and are scored on leave, with their answers."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from accelerate import Accelerator

from bertkit.config.finetune import FinetuneRecipe
from bertkit.finetune.data import Labeled, known_words
from bertkit.finetune.start import Start
from bertkit.finetune.windows import Frame, Row, WordEncoder, text_rows, word_rows
from bertkit.run.folder import read_facts, write_facts
from bertkit.run.ranks import agree_on
from data_pipelines.labels.schemes import inside_of
from data_pipelines.labels.tagged import Sentence


class Inputs(NamedTuple):
    """What all seeds share."""

    labeled: Labeled
    start: Start
    rows: dict[str, list[Row]]
    """Of train, dev and test."""
    answers: list[np.ndarray]
    """The labels at each training row's places."""
    known: set[str]
    """Words of the training data."""
    max_length: int
    batch: int
    total_steps: int

    def sentences(self, part: str) -> list[Sentence]:
        return getattr(self.labeled, part)


def prepare(recipe: FinetuneRecipe, labeled: Labeled, start: Start, accelerator: Accelerator) -> Inputs:
    """Words to pieces to rows, once for all seeds, and how many steps they make."""
    config = start.build(recipe.run.seeds[0]).config
    max_length = min(recipe.data.max_length, config.max_position_embeddings)
    rows = {
        part: make_rows(start, recipe.task, getattr(labeled, part), max_length, pieces)
        for part, pieces in (("train", recipe.data.pieces), ("dev", "first"), ("test", "first"))
    }
    number = {label: index for index, label in enumerate(labeled.labels)}
    answers = [_answers(row, labeled.train[row.sentence], number) for row in rows["train"]]

    facts = agree_on(accelerator, read_facts(Path(recipe.run.dir)))
    if facts is None:
        ranks = accelerator.num_processes
        # A step of more rows than there are would show one sentence twice; few sentences make small steps.
        batch = min(recipe.train.global_batch, math.ceil(len(rows["train"]) / ranks) * ranks)
        steps = math.ceil(recipe.train.epochs * len(rows["train"]) / batch)
        facts = {**start.facts(labeled), "batch": batch, "total_steps": steps}
        if accelerator.is_main_process:
            write_facts(Path(recipe.run.dir), facts)
    known = known_words(labeled.train)
    return Inputs(labeled, start, rows, answers, known, max_length, int(facts["batch"]), int(facts["total_steps"]))


def make_rows(start: Start, task: str, sentences: list[Sentence], max_length: int, pieces: str) -> list[Row]:
    frame = Frame.of(start.tokenizer)
    encoded = WordEncoder(start.tokenizer)([sentence.words for sentence in sentences])
    if task == "classification":
        return [row for index, one in enumerate(encoded) for row in text_rows(one, index, frame, max_length)]
    return [row for index, one in enumerate(encoded) for row in word_rows(one, index, frame, max_length, pieces)]


def _answers(row: Row, sentence: Sentence, number: dict[str, int]) -> np.ndarray:
    """The labels at a row's places; a word's later pieces go on what its first one began."""
    assert sentence.tags is not None
    labels = []
    before = -1
    for word in row.words.tolist():
        tag = sentence.tags[word]
        labels.append(number[inside_of(tag) if word == before and inside_of(tag) in number else tag])
        before = word
    return np.array(labels, np.int64)
