"""JSON Lines: one object a line; or one list of objects, which Label Studio and others write."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.sentence import Record
from data_pipelines.text.lines import REPLACE, Line

_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile(r"[\ud800-\udfff]")
"""Half of a character: JSON can spell it out, but no file can hold it and no tokenizer reads it."""


def json_records(lines: Iterable[Line], source: str, config: TaggedConfig) -> Iterator[Record]:
    lines = iter(lines)
    for line in lines:
        if line.text.lstrip().startswith("["):
            yield from _listed(chain([line], lines), source, config)
        elif line.text.strip():
            value, _ = _parsed(line.text, 0, f"{source}:{line.number}", config)
            yield _object(value, f"{source}:{line.number}"), line.number


def json_object(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"


def _listed(lines: Iterable[Line], source: str, config: TaggedConfig) -> Iterator[Record]:
    """The objects of a list that may go over many lines, each with the line on which it begins."""
    held = list(lines)
    text = "\n".join(line.text for line in held)
    at, number = text.index("[") + 1, held[0].number
    counted = 0
    while True:
        at = re.compile(r"[\s,]*").match(text, at).end()  # type: ignore[union-attr]
        number, counted = number + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            if text[at + 1 :].strip():
                raise ValueError(f"{source}:{number}: there is text after the end of the list")
            return
        value, at = _parsed(text, at, f"{source}:{number}", config)
        yield _object(value, f"{source}:{number}"), number


def _parsed(text: str, at: int, place: str, config: TaggedConfig) -> tuple[Any, int]:
    """A value and where it ends; a line by itself must end there too."""
    try:
        value, end = (json.loads(text), len(text)) if at == 0 else json.JSONDecoder().raw_decode(text, at)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON: {error}") from None
    return _whole(value, place, config.errors) if _ESCAPED_HALF.search(text, at, end) else value, end


def _whole(value: Any, place: str, errors: str) -> Any:
    """The value, in which each half of a character is refused or becomes one other character, so that places stay."""
    text = json.dumps(value, ensure_ascii=False)
    half = _HALF.search(text)
    if half and errors == "strict":
        raise ValueError(f"{place}: \\u{ord(half[0]):04x} is half of a character; mend it, or replace it ({REPLACE})")
    return json.loads(_HALF.sub("\ufffd", text)) if half else value


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: expected an object, got {type(value).__name__}")
    return value


JSON_LINES = LabelFormat(records=json_records)
