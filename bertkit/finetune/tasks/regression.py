"""A number for each text: how good, how old, how hard to read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from bertkit.config.finetune import LabeledSection
from bertkit.finetune.answers import text_logits
from bertkit.finetune.labeled import TRAINING, Labeled, make_labeled, read_parts, training_of
from bertkit.finetune.metrics import number_scores, text_mistakes
from bertkit.finetune.predict.labeled_text import OUTPUTS, LabeledText
from bertkit.finetune.tasks.bag_of_words import bag_of_words
from bertkit.finetune.tasks.classification import CLASSIFICATION
from bertkit.finetune.tasks.task import Column, Scores
from bertkit.finetune.windows import Ask, Row
from data_pipelines.labels.records import NUMBER
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.tagged import read_labeled_texts

_NAME = "score"
"""The only label, which is no choice but a number."""


def read_numbers(config: LabeledSection, paired: bool = False) -> Labeled:
    """The settings hold mean and deviation of the training numbers: the model learns how far a number lies from the
    mean, so that learning does not depend on their unit."""
    parts = read_parts(partial(read_labeled_texts, kind=NUMBER, paired=paired), config)
    labeled = make_labeled(parts, [_NAME], [], config.train_share)
    training, deviation = _mean(labeled.train), pstdev(_numbers(labeled.train)) or 1.0
    return labeled._replace(settings={**training, "deviation": deviation, TRAINING: training})


def _mean(texts: Sequence[Sentence]) -> dict[str, Any]:
    return {"mean": fmean(_numbers(texts))}


def _numbers(texts: Sequence[Sentence]) -> list[float]:
    return [float((text.tags or ["nan"])[0]) for text in texts]


def _targets(row: Row | None, text: Sentence, number: Mapping[str, int], settings: Mapping[str, Any]) -> Any:
    return np.array([[(_numbers([text])[0] - settings["mean"]) / settings["deviation"]]], np.float32)


def _loss(outputs_NK: Any, targets_NK: Any, weights_K: Any) -> Any:
    return (outputs_NK - targets_NK).square().sum()


def _in_own_unit(model: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Lets the model answer in the unit of the data, as everyone expects who opens the export."""
    last = model.head.labels.classifier
    last.weight.detach().mul_(settings["deviation"])
    last.bias.detach().mul_(settings["deviation"]).add_(settings["mean"])
    return {**settings, "mean": 0.0, "deviation": 1.0}


def _predict(
    ask: Ask, texts: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str], settings: Mapping[str, Any]
) -> list[tuple[float, None]]:
    return [(number, None) for number in _in_unit(text_logits(ask, texts, rows), settings)]


def _in_unit(outputs_NK: np.ndarray, settings: Mapping[str, Any]) -> list[float]:
    return (outputs_NK[:, 0] * settings.get("deviation", 1.0) + settings.get("mean", 0.0)).tolist()


def _score(labeled: Labeled, texts: Sequence[Sentence], predicted: list[float]) -> Scores:
    return number_scores(_numbers(texts), predicted)


def _baselines(labeled: Labeled, texts: Sequence[Sentence]) -> dict[str, list[float]]:
    guesses = {"mean of the training numbers": [training_of(labeled, _mean)["mean"]] * len(texts)}
    if labeled.train:
        known = np.concatenate([_targets(None, text, {}, labeled.settings) for text in labeled.train])
        guesses["bag of words"] = _in_unit(bag_of_words(labeled.train, known, texts, _loss), labeled.settings)
    return guesses


def _mistakes(texts: Sequence[Sentence], predicted: list[float], most: int) -> dict[str, Any]:
    wrong = [abs(a - b) for a, b in zip(_numbers(texts), predicted, strict=True)]
    return {"worst": text_mistakes(texts, predicted, wrong, "{:.4g}".format, most)}


REGRESSION = replace(
    CLASSIFICATION,
    problem_type="regression",
    columns=(
        Column("r2", "R²", "Share of the variance of the dev numbers that is explained.", "{:.3f}"),
        Column("pearson", "Pearson", form="{:.3f}"),
        Column("spearman", "Spearman", form="{:.3f}"),
        Column("mean_error", "mean error", form="{:.4g}"),
    ),
    names={"r2": "R², the share of the variance that is explained"},
    read=read_numbers,
    targets=_targets,
    loss=_loss,
    finished=_in_own_unit,
    predict=_predict,
    doubts=None,
    score=_score,
    deciding=lambda labeled: "r2",
    baselines=_baselines,
    mistakes=_mistakes,
    result=lambda text, number, _: LabeledText(text.words, {_NAME: number}),
    outputs=OUTPUTS,
)
