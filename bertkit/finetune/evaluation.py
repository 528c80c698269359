"""A model in training on dev and test: predictions, scores, and how sure it should be. The ranks share the work."""

from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from bertkit.finetune.answers import SPAN_POWER, rules_of
from bertkit.finetune.batches import asking
from bertkit.finetune.tasks.calibration import (
    binned,
    calibration_scores,
    cooled,
    fit_span_power,
    fit_temperature,
    span_surprise,
)
from bertkit.finetune.tasks.task import Scores, calibration_of
from bertkit.finetune.tuning_data import TuningData
from bertkit.finetune.windows import Ask, Row, documents
from bertkit.run.ranks import Trainable, agree_on, evaluating
from data_pipelines.labels.sentence import Sentence


class Answered(NamedTuple):
    """One part of the data, asked once: what one rank has of it."""

    part: str
    shares: list[list[int]]
    """Which sentences of the part each rank has."""
    sentences: list[Sentence]
    rows: list[Row]
    ask: Ask | None
    """Gives the logits of the rows, computed before. None for a task that asks again while it predicts."""


def evaluate(data: TuningData, part: str, trainable: Trainable) -> Scores:
    """Scores of one part of the data. All ranks take part."""
    answered = ask_once(data, part, trainable)
    predictions = _predictions(data, answered, data.labeled.settings, trainable)
    predicted = _gathered(answered, _without_confidence(predictions), trainable)
    return data.task.score(data.labeled, data.sentences(part), predicted)


def ask_once(data: TuningData, part: str, trainable: Trainable) -> Answered:
    """Computes the logits of this rank's share: of every n-th document, whose sentences stay together."""
    sentences = data.sentences(part)
    with evaluating(trainable) as (_, target_logits, device, rank, ranks, _):
        together = documents(sentences, data.form)
        shares = [[index for each in together[other::ranks] for index in each] for other in range(ranks)]
        place = {index: place for place, index in enumerate(shares[rank])}
        rows = [row._replace(sentence=place[row.sentence]) for row in data.rows[part] if row.sentence in place]
        answers = [] if data.task.asks_again else list(asking(target_logits, device)(rows))
    mine = [sentences[index] for index in shares[rank]]
    return Answered(part, shares, mine, rows, None if data.task.asks_again else lambda asked: iter(answers))


ConfidenceSettings = dict[str, float]
"""The settings "temperature" and, of spans, their power."""


class Temperatures(NamedTuple):
    fitted: ConfidenceSettings
    """What fits the whole dev set best."""
    crossed: tuple[ConfidenceSettings, ConfidenceSettings]
    """What fits the odd ones of its sentences best, for the even ones; and the other way round. The error that dev
    shows with them is not flattered by a temperature that was fitted to it."""

    def of(self, part: str) -> tuple[ConfidenceSettings, ...]:
        """Those that the sentences of a part take in turn."""
        return self.crossed if part == "dev" else (self.fitted,)


def fit_temperatures(data: TuningData, dev: Answered, trainable: Trainable) -> Temperatures | None:
    """None where the task gives no probabilities."""
    calibration = calibration_of(data.task)
    if calibration is None or dev.ask is None:
        return None
    labels, settings = data.labeled.labels, data.labeled.settings
    surprise = calibration.surprise(dev.ask, dev.sentences, dev.rows, labels, settings)
    odd_S = np.array(dev.shares[trainable.accelerator.process_index], int) % 2 == 1

    def total(surprise: np.ndarray) -> float:
        return sum(_of_all_ranks(float(surprise.sum()), trainable))

    def fit(chosen_S: np.ndarray) -> ConfidenceSettings:
        temperature = fit_temperature(lambda tried: total(surprise(tried)[chosen_S]))
        if rules_of(labels, settings) is None:
            return {"temperature": temperature}
        answers = zip(dev.sentences, _predictions(data, dev, settings, trainable, temperature), strict=True)
        of_spans = span_surprise(calibration, compress(answers, chosen_S))
        return {"temperature": temperature, SPAN_POWER: fit_span_power(lambda tried: total(of_spans(tried)))}

    return Temperatures(fit(np.ones_like(odd_S)), (fit(odd_S), fit(~odd_S)))


def all_scores(
    data: TuningData, answered: Answered, temperatures: Temperatures | None, worst: int, trainable: Trainable
) -> Scores:
    """Also of other ways to predict, how far confidence is from the truth, and mistakes with the worst sentences."""
    task, settings, sentences = data.task, data.labeled.settings, data.sentences(answered.part)
    predictions = _predictions(data, answered, settings, trainable)
    predicted = _gathered(answered, _without_confidence(predictions), trainable)
    scores = task.score(data.labeled, sentences, predicted)
    for name, other in task.other_settings(settings).items():
        otherwise = _without_confidence(_predictions(data, answered, other, trainable))
        scores[name] = task.score(data.labeled, sentences, _gathered(answered, otherwise, trainable))
    calibration = calibration_of(task)
    if temperatures is not None and calibration is not None:
        in_turn = [
            _predictions(data, answered, {**settings, **each}, trainable, each["temperature"])
            for each in temperatures.of(answered.part)
        ]
        mine = answered.shares[trainable.accelerator.process_index]
        calibrated = [in_turn[index % len(in_turn)][place] for place, index in enumerate(mine)]
        bins = {
            name: binned(calibration, answered.sentences, each)
            for name, each in (("error", calibrated), ("error_before", predictions))
        }
        scores["calibration"] = calibration_scores(_of_all_ranks(bins, trainable))
    return scores | task.mistakes(sentences, predicted, worst)


def doubts_about(data: TuningData, part: str, trainable: Trainable) -> list[Any]:
    """What the model makes of the labels that each sentence was given, the same on every rank."""
    answered, known = ask_once(data, part, trainable), (data.labeled.labels, data.labeled.settings)
    assert data.task.doubts is not None
    assert answered.ask is not None
    mine = data.task.doubts(answered.ask, answered.sentences, answered.rows, *known)
    return _gathered(answered, mine, trainable)


def _predictions(
    data: TuningData, answered: Answered, settings: dict[str, Any], trainable: Trainable, temperature: float = 1.0
) -> list[tuple[Any, Any]]:
    given = (answered.sentences, answered.rows, data.labeled.labels, settings)
    if answered.ask is not None:
        if not answered.sentences:  # fewer documents than ranks
            return []
        return data.task.predict(cooled(answered.ask, temperature), *given)
    with evaluating(trainable) as (_, target_logits, device, *_):
        return data.task.predict(asking(target_logits, device), *given)


def _without_confidence(predictions: list[tuple[Any, Any]]) -> list[Any]:
    return [prediction for prediction, _ in predictions]


def _gathered(answered: Answered, mine: list[Any], trainable: Trainable) -> list[Any]:
    """What all ranks found, a value for each sentence of the part, in their order, the same on every rank."""
    found = _of_all_ranks(mine, trainable)
    by_index = {
        index: value
        for share, its in zip(answered.shares, found, strict=True)
        for index, value in zip(share, its, strict=True)
    }
    return [by_index[index] for index in range(len(by_index))]


def _of_all_ranks(value: Any, trainable: Trainable) -> list[Any]:
    return [agree_on(trainable.accelerator, value, rank) for rank in range(trainable.accelerator.num_processes)]
