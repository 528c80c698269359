"""Any number of labels for each text: what it is about, what is wrong with it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bertkit.finetune.answers import text_logits
from bertkit.finetune.clinic.doubts import doubt_label_sets
from bertkit.finetune.labeled import Labeled, training_of
from bertkit.finetune.metrics import gold_tags, label_set_scores, text_mistakes
from bertkit.finetune.predict.labeled_text import OUTPUTS, LabeledText
from bertkit.finetune.tasks.bag_of_words import bag_of_words
from bertkit.finetune.tasks.calibration import Calibration, Hits, Surprise
from bertkit.finetune.tasks.classification import CLASSIFICATION, read_labels, usual_labels
from bertkit.finetune.tasks.task import Column
from bertkit.finetune.windows import Ask, Row
from data_pipelines.labels.records import SEVERAL_LABELS
from data_pipelines.labels.sentence import Sentence

# N texts, K labels


def _targets(row: Row | None, text: Sentence, number: Mapping[str, int], settings: Mapping[str, Any]) -> Any:
    return np.array([[label in (text.tags or ()) for label in number]], np.float32)


def _loss(logits_NK: Any, targets_NK: Any, weights_K: Any) -> Any:
    from torch.nn.functional import binary_cross_entropy_with_logits

    return binary_cross_entropy_with_logits(logits_NK, targets_NK, weights_K, reduction="sum")


def _predict(
    ask: Ask, texts: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str], settings: Mapping[str, Any]
) -> list[tuple[list[str], dict[str, float]]]:
    """The labels that are likelier than not, and the probability of every label."""
    return _chosen(text_logits(ask, texts, rows), labels)


def _chosen(logits_NK: np.ndarray, labels: Sequence[str]) -> list[tuple[list[str], dict[str, float]]]:
    sure = [dict(zip(labels, each, strict=True)) for each in (1 / (1 + np.exp(-logits_NK))).tolist()]
    return [([label for label in labels if each[label] > 0.5], each) for each in sure]


def _baselines(labeled: Labeled, texts: Sequence[Sentence]) -> dict[str, list[list[str]]]:
    guesses = {"most frequent labels": [training_of(labeled, usual_labels)["majority"]] * len(texts)}
    if labeled.train:
        number = {label: index for index, label in enumerate(labeled.labels)}
        known = np.concatenate([_targets(None, text, number, {}) for text in labeled.train])
        bag = _chosen(bag_of_words(labeled.train, known, texts, _loss), labeled.labels)
        guesses["bag of words"] = [labels for labels, _ in bag]
    return guesses


def _mistakes(texts: Sequence[Sentence], predicted: list[list[str]], most: int) -> dict[str, Any]:
    """A label that was missed has nothing beside it, nor one that was made up."""
    gold = gold_tags(texts)
    missed = Counter(label for a, b in zip(gold, predicted, strict=True) for label in set(a) - set(b))
    made_up = Counter(label for a, b in zip(gold, predicted, strict=True) for label in set(b) - set(a))
    pairs = [(label, "", n) for label, n in missed.items()] + [("", label, n) for label, n in made_up.items()]
    wrong = [float(len(set(a) ^ set(b))) for a, b in zip(gold, predicted, strict=True)]
    return {
        "confusions": sorted(pairs, key=lambda pair: (-pair[2], pair))[:20],
        "worst": text_mistakes(texts, predicted, wrong, ", ".join, most),
    }


def _surprise(
    ask: Ask, texts: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str], settings: Mapping[str, Any]
) -> Surprise:
    """Of every label of every text, given or not."""
    logits_NK = text_logits(ask, texts, rows).astype(np.float64) if rows else np.zeros((0, len(labels)))
    number = {label: index for index, label in enumerate(labels)}
    given = [_targets(None, text, number, settings) for text in texts]
    sign_NK = 2 * np.concatenate([logits_NK[:0], *given], dtype=np.float64) - 1
    return lambda temperature: np.logaddexp(0, -sign_NK * logits_NK / temperature).sum(axis=1)


def _hits(text: Sentence, labels: list[str], sure: Mapping[str, float]) -> Hits:
    """How sure it is that a label is there, or that it is not."""
    gold = text.tags or ()
    pairs = [(p, label in gold) if p > 0.5 else (1 - p, label not in gold) for label, p in sure.items()]
    return {"labels": pairs}


def _result(text: Sentence, labels: list[str], sure: dict[str, float]) -> LabeledText:
    return LabeledText(text.words, {"labels": labels, "confidences": {k: round(p, 4) for k, p in sure.items()}})


MULTI_LABEL = replace(
    CLASSIFICATION,
    problem_type="multi_label_classification",
    columns=(
        Column("precision", "precision"),
        Column("recall", "recall"),
        Column("f1", "F1", "Of all labels of the dev texts."),
        Column("macro_f1", "macro-F1"),
        Column("exact", "all labels right"),
    ),
    names={**CLASSIFICATION.names, "gold": "labels", "exact": "all labels right"},
    read=partial(read_labels, kind=SEVERAL_LABELS),
    targets=_targets,
    loss=_loss,
    calibration=Calibration(_surprise, _hits),
    predict=_predict,
    doubts=doubt_label_sets,
    score=lambda labeled, texts, predicted: label_set_scores(gold_tags(texts), predicted),
    deciding=lambda labeled: "f1",
    baselines=_baselines,
    mistakes=_mistakes,
    result=_result,
    outputs=OUTPUTS,
)
