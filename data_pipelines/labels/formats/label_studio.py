"""Label Studio: one JSON list of tasks, each with its text, what people marked, and what models predicted."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.formats.json_lines import json_records
from data_pipelines.labels.placing import character_spans, placed
from data_pipelines.labels.records import is_task, other_fields
from data_pipelines.labels.sentence import Sentence

_MODEL = "bertkit"


def write_label_studio(sentences: Iterable[Sentence], config: TaggedConfig) -> Iterator[str]:
    """Tasks with a prediction each, which people see before they mark; what a task held before is kept."""
    return _list_of_tasks(
        _task(sentence, {**other_fields(sentence), "text": sentence.text}, _span_marks(sentence))
        for sentence in map(placed, sentences)
    )


def write_label_studio_texts(texts: Iterable[Sentence], config: TaggedConfig) -> Iterator[str]:
    return _list_of_tasks(
        _task(text, {**(text.record or {}), "text": text.words[0]}, [_mark("choices", {"choices": text.tags})])
        for text in texts
    )


def _span_marks(sentence: Sentence) -> list[dict[str, Any]]:
    text = sentence.text or ""
    return [
        _mark("labels", {"start": start, "end": end, "text": text[start:end], "labels": [kind]})
        | ({} if score is None else {"score": round(score, 4)})
        for start, end, kind, score in character_spans(sentence)
    ]


def _mark(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    """The names are those of Label Studio's own templates."""
    name = {"labels": "label", "choices": "sentiment"}[kind]
    return {"from_name": name, "to_name": "text", "type": kind, "value": value}


def _task(sentence: Sentence, data: dict[str, Any], marks: list[dict[str, Any]]) -> dict[str, Any]:
    """The task that the sentence was read from, or a new one with these data."""
    record = sentence.record or {}
    task = record if is_task(record) else {"data": data}
    return {**task, "predictions": [{"model_version": _MODEL, "result": marks}]}


def _list_of_tasks(tasks: Iterable[dict[str, Any]]) -> Iterator[str]:
    before = "[\n"
    for task in tasks:
        yield before + json.dumps(task, ensure_ascii=False)
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


LABEL_STUDIO = LabelFormat(records=json_records, write=write_label_studio, write_texts=write_label_studio_texts)
