"""What a setting may be, written into its annotation and checked by `check_bounds` in every config's `__post_init__`.

    rate: Annotated[float, Range("(0, 1)")] = 0.15
    keep: Annotated[int, Range("[2, inf)")] = 2
    unit: Annotated[str, OneOf(UNITS)] = "token"

The reader of recipes and the help read the same annotations.
"""

import math
import re
import typing
from collections.abc import Collection, Iterator
from functools import cache
from typing import Annotated, Any

from data_pipelines.table import did_you_mean


class Range:
    """An interval as it is written in mathematics: "[1, inf)", "(0, 1)", "[8, 2**20]"."""

    def __init__(self, interval: str):
        match = re.fullmatch(r"([\[(])(.+), (.+)([\])])", interval)
        assert match, interval
        self.interval = interval
        self.low, self.high = (_number(text) for text in match.group(2, 3))
        self._low_open, self._high_open = match[1] == "(", match[4] == ")"

    def problem(self, value: Any) -> str | None:
        """Why the value is refused, or None. NaN lies in no interval."""
        above = value > self.low if self._low_open else value >= self.low
        below = value < self.high if self._high_open else value <= self.high
        if above and below:
            return None
        if math.isinf(self.high):
            return f"must be {'greater than' if self._low_open else 'at least'} {self.low}, got {value}"
        if self._low_open or self._high_open:
            return f"must be in {self.interval}, got {value}"
        return f"must be {f'at most {self.high}' if above else f'at least {self.low}'}, got {value}"


class OneOf:
    """One of the names of a table, or of any other collection; names that a plugin adds count at once."""

    def __init__(self, names: Collection[str]):
        self.names = names

    def problem(self, value: Any) -> str | None:
        if value in self.names:
            return None
        hint = did_you_mean(str(value), self.names)
        return f"must be one of {', '.join(self.names)}, got {shown(value)}{hint}"


def check_bounds(config: Any) -> None:
    """Refuse a config with a field outside its bounds, naming the field; None means "not given" and passes."""
    cls: type = type(config)
    for name, bound in _bounds(cls):
        value = getattr(config, name)
        listed = isinstance(value, (list, tuple))
        for index, item in enumerate(value if listed else [value]):
            problem = None if item is None else bound.problem(item)
            if problem:
                raise ValueError(f"{name}{f'[{index}]' if listed else ''} {problem}")


def check_choice(key: str, value: Any, names: Collection[str]) -> None:
    """Refuse a value that is not one of the names, naming the key and the nearest name."""
    if problem := OneOf(names).problem(value):
        raise ValueError(f"{key} {problem}")


def marks_of(hint: Any) -> Iterator[Any]:
    """What the annotation of a field carries beside its type, in unions and lists too."""
    if typing.get_origin(hint) is Annotated:
        yield from hint.__metadata__
    for argument in typing.get_args(hint):
        if typing.get_origin(argument) is not None:
            yield from marks_of(argument)


def check_utf8(key: str, path: str) -> None:
    """Refuse a path of other bytes: it could be opened, but written into no recipe, card or log."""
    if any("\ud800" <= char <= "\udfff" for char in path):
        raise ValueError(f"{key} is not UTF-8: {path!r}; rename the file or folder")


def shown(value: Any) -> str:
    """A value as an error shows it: in one line, and not the whole of a long one."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text):,} characters)"


@cache
def _bounds(cls: type) -> tuple[tuple[str, Range | OneOf], ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    marks = ((name, mark) for name, hint in hints.items() for mark in marks_of(hint))
    return tuple((name, mark) for name, mark in marks if isinstance(mark, (Range, OneOf)))


def _number(text: str) -> float:
    """A bound as it is written: inf, 0.5, 8, 2**20."""
    base, power, exponent = text.partition("**")
    if power:
        return int(base) ** int(exponent)
    return int(text) if text.lstrip("-").isdecimal() else float(text)
