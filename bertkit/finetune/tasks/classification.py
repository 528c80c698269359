"""One label for each text: topic, language, sentiment."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bertkit.config.finetune import LabeledSection
from bertkit.finetune.answers import Confidence, softmax, text_logits
from bertkit.finetune.clinic.doubts import doubt_texts
from bertkit.finetune.labeled import TRAINING, Labeled, make_labeled, read_parts, training_of, unlearnable
from bertkit.finetune.metrics import gold_tags, label_mistakes, word_scores
from bertkit.finetune.predict.inputs import text_inputs
from bertkit.finetune.predict.labeled_text import read_text
from bertkit.finetune.predict.outputs import TEXT_OUTPUTS
from bertkit.finetune.predict.tagging import Tagging
from bertkit.finetune.tasks.bag_of_words import bag_of_words
from bertkit.finetune.tasks.calibration import ABOUT_CALIBRATION
from bertkit.finetune.tasks.task import Column, Task
from bertkit.finetune.windows import Ask, Row, text_rows, text_target
from data_pipelines.labels.records import ONE_LABEL, LabelKind
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.tagged import read_labeled_texts


def read_labels(config: LabeledSection, kind: LabelKind = ONE_LABEL, paired: bool = False) -> Labeled:
    """Texts, or pairs of them, whose labels are those of the training data."""
    parts = read_parts(partial(read_labeled_texts, kind=kind, paired=paired), config)
    labels = sorted({tag for text in parts["train"] for tag in text.tags or ()})
    labeled = make_labeled(parts, labels, unlearnable(parts, labels), config.train_share)
    return labeled._replace(settings={TRAINING: usual_labels(labeled.train)})


def usual_labels(texts: Sequence[Sentence]) -> dict[str, Any]:
    """The most frequent labels of a text, for a baseline."""
    counts = Counter(tuple(sorted(text.tags or ())) for text in texts)
    return {"majority": list(min(counts.items(), key=lambda item: (-item[1], item[0]))[0])}


def predict_label(
    ask: Ask, texts: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str], settings: Mapping[str, Any]
) -> list[tuple[list[str], Confidence]]:
    """For each text its likeliest label."""
    probability_NK = softmax(text_logits(ask, texts, rows))
    best, sure = probability_NK.argmax(axis=1).tolist(), probability_NK.max(axis=1).tolist()
    return [([labels[index]], Confidence([probability])) for index, probability in zip(best, sure, strict=True)]


def _baselines(labeled: Labeled, texts: Sequence[Sentence]) -> dict[str, list[list[str]]]:
    """The most frequent label for all, and a bag of words where the training texts are at hand."""
    guesses = {"majority tag": [training_of(labeled, usual_labels)["majority"]] * len(texts)}
    if labeled.train:
        counts = Counter(tag for text in labeled.train for tag in text.tags or ())
        labels = sorted(counts, key=lambda label: (-counts[label], label))
        known = np.array([labels.index(tag) for text in labeled.train for tag in text.tags or ()])
        chosen = bag_of_words(labeled.train, known, texts).argmax(axis=1).tolist()
        guesses["bag of words"] = [[labels[index]] for index in chosen]
    return guesses


CLASSIFICATION = Task(
    unit="text",
    examples="texts",
    pipeline="text-classification",
    problem_type="single_label_classification",
    columns=(
        Column("accuracy", "accuracy", "Share of the dev texts whose label is right."),
        Column("macro_f1", "macro-F1"),
    ),
    names={"words": "texts", "tags": "By label", "calibration": ABOUT_CALIBRATION},
    read=read_labels,
    head="classifier",
    rows=text_rows,
    pools_windows=True,
    targets=text_target,
    predict=predict_label,
    doubts=doubt_texts,
    score=lambda labeled, texts, predicted: word_scores(gold_tags(texts), predicted),
    deciding=lambda labeled: "accuracy",
    baselines=_baselines,
    mistakes=label_mistakes,
    reader=lambda settings: read_text,
    result=Tagging.of,
    inputs=text_inputs,
    outputs=TEXT_OUTPUTS,
)
