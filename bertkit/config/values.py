"""One value as a user wrote it, in a recipe or on the command line, becomes what its annotation says."""

import os
import re
import sys
import types
import typing
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any, Literal, Union

from data_pipelines.bounds import check_choice, check_utf8, shown

_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def coerce(value: Any, kind: Any, key: str) -> Any:
    """The value as `kind` says, or a ValueError that names the key, the value and what was expected."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return coerce(value, arguments[0], key)
    if origin in (Union, types.UnionType):
        return _coerce_union(value, arguments, key)
    if origin is Literal:
        check_choice(key, value, arguments)
        return value
    if origin in (list, tuple):
        return origin(coerce(item, arguments[0], f"{key}[{i}]") for i, item in enumerate(_items(value, key)))
    if kind is bool:
        value = _BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value
        if isinstance(value, bool):
            return value
    elif kind is str:
        if isinstance(value, str):
            check_utf8(key, value)
            # A shell leaves it as it is in `key=~/x`, and nobody expands it in YAML: the folder would be called "~".
            return os.path.expanduser(value) if value.startswith("~/") else value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
    elif kind in (int, float):
        number = _number(value, key)
        if number is not None and (kind is float or number == int(number)):
            return kind(number)
    elif kind is Any:
        return value
    raise ValueError(f"{key} must be {_NAMES.get(kind, kind)}, got {shown(value)}")


def _coerce_union(value: Any, kinds: Iterable[Any], key: str) -> Any:
    kinds = list(kinds)
    if type(None) in kinds:
        if value is None or value in ("null", "none", "None"):
            return None
        kinds.remove(type(None))
    # A list is only tried for what looks like one, so that `str | list[str]` keeps a plain string.
    listed = isinstance(value, (list, tuple)) or (isinstance(value, str) and value.startswith("["))
    problem = None
    for kind in sorted(kinds, key=lambda kind: (typing.get_origin(kind) in (list, tuple)) != listed):
        try:
            return coerce(value, kind, key)
        except ValueError as error:
            problem = problem or error
    raise problem or ValueError(f"{key}: no type fits {shown(value)}")


def _items(value: Any, key: str) -> list[Any]:
    """The items of a list that YAML read, or that the command line wrote as `[a, b]` or as `a,b`."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            from bertkit.config.yaml_text import load_yaml

            try:
                value = load_yaml(text)
            except ValueError:
                raise ValueError(f"{key} is not a list that YAML can read: {shown(value)}") from None
        else:
            value = [item.strip() for item in text.split(",")] if text else []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _number(value: Any, key: str) -> int | float | None:
    """None for what is no number; text that YAML and people read as different numbers is refused as such."""
    number = _parse(value.strip(), key) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number != number:
        return None
    if abs(number) <= sys.float_info.max:
        return number
    if re.search(r"\d", str(value)):
        raise ValueError(f"{key} is too large, got {shown(value)}; the largest number is {sys.float_info.max:.2g}")
    return None


def _parse(text: str, key: str) -> int | float | None:
    if zeros := re.fullmatch(r"([-+]?)0[0_]*([0-9][0-9_]*)", text):
        plain = shown(zeros[1] + zeros[2])
        raise ValueError(f"{key}: {shown(text)} begins with 0, which means base 8 in YAML; write {plain} instead")
    if re.fullmatch(r"[-+]?[0-9_]+(:[0-9]+)+(\.[0-9]*)?", text):
        raise ValueError(f"{key}: {shown(text)} means base 60 in YAML; write one number, such as 90 or 1.5 for 1:30")
    with suppress(ValueError):
        return int(text, 0)
    with suppress(ValueError):
        return float(text)
    return None
