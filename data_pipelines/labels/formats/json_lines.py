"""JSON Lines: one object a line."""

import json
from collections.abc import Iterable, Iterator

from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.sentence import Record
from data_pipelines.text.lines import Line


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


JSON_LINES = LabelFormat(records=json_records)
