"""A finished tagger or classifier on labeled files: its scores beside the baselines that its folder remembers."""

from collections.abc import Sequence
from typing import Any

from bertkit.config.fields import plain
from bertkit.config.finetune import LabeledSection
from bertkit.finetune.labeled import TRAINING, Labeled, unlearnable
from bertkit.finetune.predict.tagger import Tagger
from bertkit.finetune.tasks.calibration import binned, calibration_scores
from bertkit.finetune.tasks.task import Task, calibration_of
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.schemes import parse, to_iob2
from data_pipelines.labels.sentence import Sentence


def score_labeled(tagger: Tagger, sources: Sequence[str], config: TaggedConfig, worst: int) -> dict[str, Any]:
    """Scores, mistakes, scores of the baselines, and notes on what was read; `worst` sentences are given as a whole."""
    task, given = tagger.task, plain(config)
    if tagger.settings.get("scheme") == "plain":  # tags that look like spans were taken as they are in training
        given["scheme"] = "plain"
    read = task.read(LabeledSection(train=list(sources), **given))
    sentences = [tagger.resplit(sentence) for sentence in read.train]
    known = {name: value for name, value in read.settings.items() if name != TRAINING} | tagger.settings
    labeled = Labeled([], [], sentences, tagger.labels, (), known)
    predictions = tagger.predict(sentences)
    predicted = [prediction for prediction, _ in predictions]
    if known.get("scheme", "plain") != "plain" and any((parse(label) or "O")[0] in "ES" for label in tagger.labels):
        predicted = [to_iob2(tags) for tags in predicted]  # a model of another maker; gold spans are IOB2 by now
    guesses = task.baselines(labeled, sentences) if TRAINING in known else {}
    return {
        "score": task.deciding(labeled),
        task.examples: len(sentences),
        **task.score(labeled, sentences, predicted),
        **_calibration(task, sentences, predictions),
        "baselines": {name: task.score(labeled, sentences, guess) for name, guess in guesses.items()},
        **task.mistakes(sentences, predicted, worst),
        "notes": [*read.notes, *_unknown(task, sentences, tagger.labels)],
    }


def _unknown(task: Task, sentences: list[Sentence], labels: Sequence[str]) -> list[str]:
    """Notes on labels that the model cannot give; one whose answers are no labels may give anything."""
    return [] if task.doubts is None else unlearnable({"train": [], "dev": [], "test": sentences}, labels)


def _calibration(task: Task, sentences: Sequence[Sentence], predictions: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    calibration = calibration_of(task)
    if calibration is None:
        return {}
    return {"calibration": calibration_scores([{"error": binned(calibration, sentences, predictions)}])}
