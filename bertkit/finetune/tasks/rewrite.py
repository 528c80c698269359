"""A text for each text: correct, normalise, transliterate, inflect; with features, one for a text and its features."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bertkit.config.finetune import LabeledSection
from bertkit.finetune.labeled import TRAINING, Labeled, make_labeled, read_parts, training_of
from bertkit.finetune.metrics import text_mistakes
from bertkit.finetune.predict.inputs import Part, Reading, inputs_of_records, of_records, texts_of_lines
from bertkit.finetune.predict.labeled_text import write_json
from bertkit.finetune.predict.outputs import Answer
from bertkit.finetune.tasks.task import Column, Task, Vocabulary
from bertkit.finetune.windows import Ask, Row, RowForm, WordEncoder
from bertkit.finetune.writing.drafts import text_of, written
from bertkit.finetune.writing.scores import apply_edits, edit_distance, frequent_edits, text_scores
from bertkit.finetune.writing.script import (
    APART,
    BETWEEN,
    Script,
    feature_token,
    knows_feature,
    make_script,
    source_rows,
    target_ids,
    training_row,
)
from bertkit.finetune.writing.slots import Slots, fitting_slots
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.records import ToTag
from data_pipelines.labels.rewrites import read_rewrites, source_of_record, split_source, tab_records
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import Line
from data_pipelines.vocab.tokenizer import Tokenizer

log = logging.getLogger(__name__)
_UNKNOWN_FEATURES = "the model was trained without these features and does not tell them apart: %s"
_LONGEST = 0.998
"""The share of the training targets that writing leaves room for: an odd long one would cost every other."""

_SMOOTHING = 0.1
"""Probability that training spreads over all tokens: a model that is never quite sure writes better."""


def read_pairs(config: LabeledSection) -> Labeled:
    """Pairs of texts. The settings hold how they are to be written."""
    parts = read_parts(read_rewrites, config)
    labeled = make_labeled(parts, [], [], config.train_share)
    settings = {
        "units": config.units,
        "order": config.order,
        "passes": config.passes,
        "beams": config.beams,
        "length_penalty": config.length_penalty,
        "corruption": config.corruption,
        "extra": _extra(labeled.train, config.units),
        APART: True,
        BETWEEN: _slots(labeled.train, config.units) if config.slots == "between" else None,
        TRAINING: _training(labeled.train),
    }
    return labeled._replace(settings=settings)


def _training(pairs: Sequence[Sentence]) -> dict[str, Any]:
    return {"edits": frequent_edits(pairs)}


def _extra(pairs: Sequence[Sentence], units: str) -> int:
    """How much longer targets are than their sources: in bytes or characters, which tokens are not more than."""
    sized = str.encode if units == "byte" else str
    more = sorted(len(sized(_target(pair))) - len(sized(pair.words[0])) for pair in pairs)
    return max(0, more[min(len(more) - 1, int(_LONGEST * len(more)))])


def _slots(pairs: Sequence[Sentence], units: str) -> Slots:
    """Slots before and after a source, counted in bytes or characters, too."""

    def coded(text: str) -> np.ndarray:
        return np.array([*text.encode()] if units == "byte" else [*map(ord, text)], int)

    return fitting_slots([(coded(pair.words[0]), coded(_target(pair))) for pair in pairs], _LONGEST)


def _target(pair: Sentence) -> str:
    assert pair.tags is not None
    return pair.tags[0]


def _vocabulary(labeled: Labeled) -> Vocabulary:
    texts = [text for pair in labeled.train for text in (pair.words[0], _target(pair))]
    features = sorted({feature for pair in labeled.train for feature in pair.words[1:]})
    units = labeled.settings["units"]
    return Vocabulary(texts, None if units == "token" else units, [feature_token(feature) for feature in features])


def _bound(task: Task, tokenizer: Tokenizer, form: RowForm, settings: Mapping[str, Any]) -> Task:
    script = make_script(tokenizer, form, settings)
    return replace(
        task,
        rows=partial(source_rows, script),
        targets=partial(target_ids, script, WordEncoder(tokenizer)),
        drawn=partial(training_row, script),
        predict=partial(_predict, script, set()),
    )


def _loss(logits_MV: Any, target_M: Any, weights: None) -> Any:
    import torch.nn.functional as F

    return F.cross_entropy(logits_MV, target_M, reduction="sum", label_smoothing=_SMOOTHING)


def _predict(
    script: Script,
    warned: set[str],
    ask: Ask,
    pairs: Sequence[Sentence],
    rows: Sequence[Row],
    labels: Sequence[str],
    settings: Mapping[str, Any],
) -> list[tuple[str, list[tuple[str, float]]]]:
    """For each source a text, and the best texts with their scores. Of features that the model does not know `warned`
    holds those that were named already."""
    unknown = {feature for pair in pairs for feature in pair.words[1:]} - warned
    if unknown := {feature for feature in unknown if not knows_feature(script.tokenizer, feature)}:
        log.warning(_UNKNOWN_FEATURES, ", ".join(map(repr, sorted(unknown))))
        warned |= unknown
    best = settings.get("best", 1)
    if script.parallel:
        from bertkit.finetune.writing.parallel import write_parallel

        drafts = [[draft] for draft, _ in write_parallel(ask, script, rows, settings["passes"])]
    else:
        from bertkit.finetune.writing.left_to_right import Search, write_left_to_right

        # Tokens that differ may spell the same text, so more are asked for than are given.
        search = Search(max(settings["beams"], best), 2 * best if best > 1 else 1, settings["length_penalty"])
        drafts = write_left_to_right(ask, script, rows, search)
    found = []
    for pair, these in zip(pairs, drafts, strict=True):
        scores: dict[str, float] = {}
        for draft in these:
            scores.setdefault(text_of(script, draft.ids, pair.words[0]), draft.score)
        texts = [*scores.items()][:best]
        found.append((texts[0][0], texts))
    return found


def _other_settings(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What one pass gives, and what a wider search."""
    if settings["order"] == "parallel":
        return {"one_pass": {**settings, "passes": 1}} if settings["passes"] > 1 else {}
    return {"five_beams": {**settings, "beams": 5}} if settings["beams"] == 1 else {}


def _mistakes(pairs: Sequence[Sentence], predicted: list[str], most: int) -> dict[str, Any]:
    wrong = [float(edit_distance(_target(pair), text)) for pair, text in zip(pairs, predicted, strict=True)]
    return {"worst": text_mistakes(pairs, predicted, wrong, str, most)}


def _baselines(labeled: Labeled, pairs: Sequence[Sentence]) -> dict[str, list[str]]:
    edits = training_of(labeled, _training)["edits"]
    return {
        "copy of the source": [pair.words[0] for pair in pairs],
        "most frequent edit": [apply_edits(edits, pair) for pair in pairs],
    }


def _reader(settings: dict[str, Any]) -> Callable[[str | Sequence[str]], Sentence]:
    """A source, in a line with a tab before its features, or as a list of the source and each feature."""
    features = "feature_column" in settings.get("files", {})

    def read(given: str | Sequence[str]) -> Sentence:
        return Sentence(split_source(given, features) if isinstance(given, str) else list(given), None, "", [])

    return read


def _inputs(lines: Iterable[Line], source: str, kind: str, reading: Reading) -> Iterator[Part]:
    """A source a line, or those that records hold."""
    if kind == "text":
        return texts_of_lines(lines, source, partial(split_source, features=bool(reading.config.feature_column)))
    if kind == "tsv":  # with a header or without one, as in training
        tabs = LabelFormat(records=partial(tab_records, tagged=False))
        return of_records(tabs, lines, source, reading.config, _given_source)
    return inputs_of_records(lines, source, kind, reading.config, _given_source, "rewrites texts")


def _given_source(record: Mapping[str, Any], config: TaggedConfig, place: str) -> ToTag:
    return ToTag(source_of_record(record, config, place))


def _write_lines(answers: Iterable[Answer], reading: Reading) -> None:
    """A line for each source, of several texts with tabs between them; blank lines stay."""
    for part, result in answers:
        if result is None:
            print(*part.fill([]), sep="\n")
        else:
            texts = [text for text, _ in result.best] or [result.text]
            print("\t".join(" ".join(text.splitlines()) for text in texts))


REWRITE = Task(
    unit="text",
    examples="pairs",
    pipeline="fill-mask",
    columns=(
        Column("exact", "exact match", "Share of the dev targets that are written without any mistake."),
        Column("edit_distance", "edit distance", "Mean edits to the right text, in characters.", "{:.3f}"),
        Column("character_f1", "character F1"),
    ),
    names={"texts": "pairs", "one_pass": "In one pass", "five_beams": "With five beams"},
    read=read_pairs,
    vocabulary=_vocabulary,
    head="masked-lm",
    bound=_bound,
    rows=lambda *_: [],
    targets=lambda *_: None,
    loss=_loss,
    predict=lambda *_: [],
    asks_again=True,
    other_settings=_other_settings,
    score=lambda labeled, pairs, predicted: text_scores([_target(pair) for pair in pairs], predicted),
    example='Writer.load("PATH/TO/THIS/FOLDER").write("some text")',
    deciding=lambda labeled: "exact",
    baselines=_baselines,
    mistakes=_mistakes,
    reader=_reader,
    result=written,
    inputs=_inputs,
    outputs={"text": _write_lines, "jsonl": write_json},
)
