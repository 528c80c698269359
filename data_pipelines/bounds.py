"""What a setting may be, written into its annotation and checked by `check_bounds` in every config's `__post_init__`.

    rate: Annotated[float, Range("(0, 1)")] = 0.15
    keep: Annotated[int, Range("[2, inf)")] = 2
    unit: Annotated[str, OneOf(UNITS)] = "token"

The reader of recipes and the help read the same annotations.
"""

import math
import re
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from data_pipelines.table import nearest


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
            return f"must lie in {self.interval}, got {value}"
        return f"must lie between {self.low} and {self.high}, got {value}"


class OneOf:
    """One of the names of a table, or of any other collection; names that a plugin adds count at once."""

    def __init__(self, names: Iterable[str]):
        self.names = names

    def problem(self, value: Any) -> str | None:
        if value in list(self.names):
            return None
        match = nearest(str(value), self.names)
        return f"must be one of {', '.join(self.names)}, got {value!r}" + (
            f"; did you mean {match!r}?" if match else ""
        )


def check_bounds(config: Any) -> None:
    """Refuse a config with a field outside its bounds, naming the field; None stands for "not given" and passes."""
    for name, bound in bounds_of(type(config)):
        value = getattr(config, name)
        for item in value if isinstance(value, (list, tuple)) else [value]:
            problem = None if item is None else bound.problem(item)
            if problem:
                raise ValueError(f"{name} {problem}")


def bounds_of(cls: type) -> Iterable[tuple[str, Range | OneOf]]:
    """Every bound that a config's annotations hold, with the field's name."""
    return _bounds(cls)


@cache
def _bounds(cls: type) -> tuple[tuple[str, Range | OneOf], ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple((name, bound) for name, hint in hints.items() for bound in _in_annotation(hint))


def _in_annotation(hint: Any) -> Iterator[Range | OneOf]:
    """Bounds of a field, of the members of its union, and of the items of its list."""
    if typing.get_origin(hint) is typing.Annotated:
        yield from (extra for extra in hint.__metadata__ if isinstance(extra, (Range, OneOf)))
    for argument in typing.get_args(hint):
        if typing.get_origin(argument) is not None:
            yield from _in_annotation(argument)


def _number(text: str) -> float:
    base, power, exponent = text.partition("**")
    if power:
        return int(base) ** int(exponent)
    return int(text) if text.lstrip("-").isdecimal() else float(text)
