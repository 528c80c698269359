"""JSON Lines: one object a line."""

import json
from collections.abc import Iterable, Iterator

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.records import Record, sentences_of_records, texts_of_records
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import Line


def _sentences(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    return sentences_of_records(json_records(lines, source), source, config, tagged)


def _texts(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    return texts_of_records(json_records(lines, source), source, config, tagged)


def json_records(lines: Iterable[Line], source: str) -> Iterator[Record]:
    for text, number, _ in lines:
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{source}:{number}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(f"{source}:{number}: expected an object, got {type(record).__name__}")
        yield record, number


JSON_LINES = LabelFormat(sentences=_sentences, texts=_texts)
