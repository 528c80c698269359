"""One label for two texts: whether one follows from the other, says the same, answers it."""

from dataclasses import replace
from functools import partial
from typing import Any

from bertkit.finetune.metrics import confusions, gold_tags, text_mistakes
from bertkit.finetune.predict.labeled_text import OUTPUTS, LabeledText, pair_inputs, read_pair
from bertkit.finetune.tasks.classification import CLASSIFICATION, read_labels
from bertkit.finetune.tasks.task import Column
from bertkit.finetune.windows import pair_rows


def _mistakes(pairs, predicted: list[list[str]], most: int) -> dict[str, Any]:
    gold = gold_tags(pairs)
    wrong = [float(a != b) for a, b in zip(gold, predicted, strict=True)]
    return {
        "confusions": confusions(gold, predicted),
        "worst": text_mistakes(pairs, predicted, wrong, ", ".join, most),
    }


PAIRS = replace(
    CLASSIFICATION,
    unit="pair",
    examples="pairs",
    columns=(
        Column("accuracy", "accuracy", "Share of the dev pairs whose label is right."),
        Column("macro_f1", "macro-F1"),
    ),
    names={**CLASSIFICATION.names, "words": "pairs"},
    read=partial(read_labels, paired=True),
    rows=pair_rows,
    pools_windows=False,
    mistakes=_mistakes,
    reader=lambda settings: read_pair,
    result=lambda pair, label, sure: LabeledText(
        pair.words, {"label": label[0], "confidence": round(sure.words[0], 4)}
    ),
    inputs=pair_inputs,
    outputs=OUTPUTS,
    example='Tagger.load("PATH/TO/THIS/FOLDER").tag(["A text.", "Another one."])',
)
