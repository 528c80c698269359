"""A text, or a pair, with what a model says of it; and how users give texts in pairs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bertkit.finetune.predict.inputs import Part, Reading, inputs_of_records, texts_of_lines
from bertkit.finetune.predict.outputs import Answer, Write, write_values
from bertkit.finetune.predict.tagging import mean_surprise
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.records import NUMBER, ONE_LABEL, SEVERAL_LABELS, ToTag, label_key, texts_of_record
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import Line


@dataclass(frozen=True)
class LabeledText:
    texts: list[str]
    """One, or two of a pair."""
    answer: dict[str, Any]
    """By the names under which labeled files hold it: "label" or "labels" and "confidence", or "score"."""

    @property
    def uncertainty(self) -> float | None:
        """The surprise at its answer in nats, of several labels the mean of all; None of a number."""
        sure = self.answer.get("confidences", self.answer.get("confidence"))
        if sure is None:
            return None
        shares = [max(share, 1 - share) for share in sure.values()] if isinstance(sure, dict) else [sure]
        return mean_surprise(shares)

    def named_texts(self) -> dict[str, str]:
        names = ("text",) if len(self.texts) == 1 else ("text1", "text2")
        return dict(zip(names, self.texts, strict=True))

    def to_json(self) -> dict[str, Any]:
        return {**self.named_texts(), **self.answer}

    def filled(self, record: Mapping[str, Any], config: TaggedConfig) -> dict[str, Any]:
        """The record with the answer where labels of its kind are read from."""
        name = next(name for name in _KINDS if name in self.answer)
        key, value = label_key(record, config, _KINDS[name]), self.answer[name]
        if isinstance(value, list) and not isinstance(record.get(key), list):
            value = (config.label_separator or " ").join(value)
        return {**record, key: value}


def write_json(answers: Iterable[Answer], reading: Reading) -> None:
    """An object a line; other fields that a record had are kept, and where there was no text nothing is said of it."""
    for part, result in answers:
        if part.form is not None and result is None:
            print(*part.fill([]), sep="\n")
        else:
            kept = {} if part.record is None or result is None else result.filled(part.record, reading.config)
            print(json.dumps({**kept, **(result.to_json() if result else {})}, ensure_ascii=False))


def write_table(answers: Iterable[Answer], reading: Reading, delimiter: str) -> None:
    """CSV or TSV: a row for each text or pair; records keep their other columns."""
    rows = (
        (part.place, result.filled(result.named_texts() if part.record is None else part.record, reading.config))
        for part, result in answers
        if result is not None
    )
    write_values(rows, delimiter)


_KINDS = {"label": ONE_LABEL, "labels": SEVERAL_LABELS, "score": NUMBER}
OUTPUTS: dict[str, Write] = {
    "jsonl": write_json,
    "csv": partial(write_table, delimiter=","),
    "tsv": partial(write_table, delimiter="\t"),
}


def read_text(given: str | Sequence[str]) -> Sentence:
    """A text is a sentence of one word."""
    if isinstance(given, str):
        return Sentence([given], None, "", [], given, [(0, len(given))])
    if len(given) != 1:
        raise ValueError("this model labels texts; give it a text, not words")
    return Sentence(list(given), None, "", [])


def read_pair(given: str | Sequence[str]) -> Sentence:
    """Two texts, or one line with a tab between them."""
    texts = given.split("\t") if isinstance(given, str) else list(given)
    if len(texts) != 2:
        raise ValueError(f"this model reads two texts at once, with a tab between them in a line; got {len(texts)}")
    return Sentence(texts, None, "", [])


def pair_inputs(lines: Iterable[Line], source: str, kind: str, reading: Reading) -> Iterator[Part]:
    """A pair a line, its two texts separated by a tab, or those that records hold."""
    if kind == "text":
        return texts_of_lines(lines, source, read_pair)
    return inputs_of_records(lines, source, kind, reading.config, _given_pair, "reads pairs of texts")


def _given_pair(record: Mapping[str, Any], config: TaggedConfig, place: str) -> ToTag:
    return ToTag(texts_of_record(record, config, place, True))
