"""A text, or a pair, with what a model says of it; and how users give texts in pairs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bertkit.finetune.predict.inputs import Part, Reading, texts_of_lines
from bertkit.finetune.predict.outputs import Answer, Write
from bertkit.finetune.predict.tagging import mean_surprise
from data_pipelines.labels.formats import format_named
from data_pipelines.labels.records import texts_of_record
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

    def to_json(self) -> dict[str, Any]:
        names = ("text",) if len(self.texts) == 1 else ("text1", "text2")
        return {**dict(zip(names, self.texts, strict=True)), **self.answer}


def write_json(answers: Iterable[Answer], reading: Reading) -> None:
    """An object a line; other fields that a record had are kept, and where there was no text nothing is said of it."""
    for part, result in answers:
        if part.form is not None and result is None:
            print(*part.fill([]), sep="\n")
        else:
            print(json.dumps({**(part.record or {}), **(result.to_json() if result else {})}, ensure_ascii=False))


OUTPUTS: dict[str, Write] = {"jsonl": write_json}


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
        return texts_of_lines(lines, source)
    found = format_named(kind)
    if found.records is None:
        raise ValueError(f"{source}: this model reads pairs of texts, but {kind} holds words")
    places = ((record, f"{source}:{number}") for record, number in found.records(lines, source, reading.config))
    return (
        Part(texts_of_record(record, reading.config, place, True), record=record, form=found, place=place)
        for record, place in places
    )
