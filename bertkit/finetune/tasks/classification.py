"""One label for each text: topic, language, sentiment."""

from collections.abc import Sequence

from bertkit.config.finetune import LabeledSection
from bertkit.finetune.answers import LEGAL_SPANS, predict_labels
from bertkit.finetune.labeled import TRAINING, Labeled, make_labeled, read_parts, unlearnable
from bertkit.finetune.metrics import gold_tags, label_mistakes, majority_tags, training_labels, word_scores
from bertkit.finetune.predict.inputs import text_inputs
from bertkit.finetune.predict.outputs import TEXT_OUTPUTS
from bertkit.finetune.predict.tagging import Tagging
from bertkit.finetune.tasks.task import Column, Task
from bertkit.finetune.windows import label_targets, text_rows
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.tagged import read_labeled_texts


def _read(config: LabeledSection) -> Labeled:
    parts = read_parts(read_labeled_texts, config)
    labels = sorted({tag for text in parts["train"] for tag in text.tags or ()})
    labeled = make_labeled(parts, labels, unlearnable(parts, labels), config.train_share)
    return labeled._replace(settings={TRAINING: {"majority": training_labels(labeled.train)["majority"]}})


def _baselines(labeled: Labeled, texts: Sequence[Sentence]) -> dict[str, list[list[str]]]:
    known = labeled.settings.get(TRAINING) or training_labels(labeled.train)
    return {"majority tag": majority_tags(known, texts)}


def _text(given: str | Sequence[str]) -> Sentence:
    """A text is a sentence of one word."""
    if isinstance(given, str):
        return Sentence([given], None, "", [], given, [(0, len(given))])
    if len(given) != 1:
        raise ValueError("this model gives a label to a text; give it a text, not words")
    return Sentence(list(given), None, "", [])


CLASSIFICATION = Task(
    unit="text",
    examples="texts",
    pipeline="text-classification",
    columns=(
        Column("accuracy", "accuracy", "Share of the dev texts whose label is right."),
        Column("macro_f1", "macro-F1"),
    ),
    names={"words": "texts", "tags": "By label"},
    read=_read,
    head="classifier",
    rows=text_rows,
    targets=label_targets,
    # Labels of texts follow no rules, whatever they are called.
    predict=lambda ask, texts, rows, labels, _: predict_labels(ask, texts, rows, labels, {LEGAL_SPANS: False}),
    score=lambda labeled, texts, predicted: word_scores(gold_tags(texts), predicted),
    deciding=lambda labeled: "accuracy",
    baselines=_baselines,
    mistakes=label_mistakes,
    reader=lambda settings: _text,
    result=Tagging.of,
    inputs=text_inputs,
    outputs=TEXT_OUTPUTS,
)
