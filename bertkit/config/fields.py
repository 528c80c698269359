"""Untyped text enters (YAML, key=value, flags), checked dataclasses leave, with help from their docstrings."""

import argparse
import ast
import dataclasses
import inspect
import sys
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar, Union

from data_pipelines.table import nearest

Config = TypeVar("Config")


def build(cls: type[Config], values: Mapping[str, Any], prefix: str = "") -> Config:
    """Make a `cls` from nested mappings; every unknown key, wrong type or refused value names its dotted key."""
    hints = typing.get_type_hints(cls)
    if not isinstance(values, Mapping):
        raise ValueError(
            f"{prefix.rstrip('.') or 'the recipe'} holds keys of its own, got {_show(values)}; "
            f"write one of them: {', '.join(prefix + name for name in hints)}"
        )
    arguments: dict[str, Any] = {}
    # A group that must be there but is not complains of its first missing key.
    absent: dict[str, Any] = {name: {} for name in _required(cls) if name not in values and groups_of(hints[name])}
    for name, value in {**values, **absent}.items():
        if name not in hints:
            raise ValueError(f"unknown key {f'{prefix}{name}'!r}{_nearest(f'{prefix}{name}', _keys(cls, prefix))}")
        if members := groups_of(hints[name]):
            member = members[0] if len(members) == 1 else _told_apart(members, value, f"{prefix}{name}.")
            arguments[name] = build(member, value, f"{prefix}{name}.")
        else:
            arguments[name] = coerce(value, hints[name], f"{prefix}{name}")
    missing = [prefix + name for name in _required(cls) if name not in arguments]
    if missing:
        raise ValueError(f"{missing[0]} is missing; set it, for example with {missing[0]}=...")
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from None


def override(values: dict[str, Any], assignment: str) -> None:
    """Write one `dotted.key=value` from the command line into nested mappings."""
    key, equals, text = assignment.partition("=")
    if not equals or not key:
        raise ValueError(f"expected key=value, got {assignment!r}; for example train.steps=1000")
    *parents, last = key.split(".")
    for parent in parents:
        child = values.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ValueError(f"{key}: {parent!r} is a value, not a group of keys")
        values = child
    values[last] = text


def coerce(value: Any, kind: Any, key: str) -> Any:
    """The value as `kind` says, or a ValueError that names the key, the value and what was expected."""
    origin, choices = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _coerce_union(value, choices, key)
    if origin is Literal:
        if value in choices:
            return value
        raise ValueError(
            f"{key} must be one of {', '.join(map(str, choices))}, got {_show(value)}{_nearest(str(value), choices)}"
        )
    if origin in (list, tuple):
        items = _listed(value, key)
        return origin(coerce(item, choices[0], f"{key}[{i}]") for i, item in enumerate(items))
    if kind is bool:
        named = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        value = named.get(value.lower(), value) if isinstance(value, str) else value
        if isinstance(value, bool):
            return value
    elif kind is str:
        if isinstance(value, str):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
    elif kind in (int, float) and not isinstance(value, bool):
        number = _number(value)
        if number is not None and (kind is float or number == int(number)):
            return kind(number)
    elif kind is Any:
        return value
    raise ValueError(f"{key} must be {_name(kind)}, got {_show(value)}")


class Entry(NamedTuple):
    """One leaf of a config as its users see it."""

    key: str
    kind: Any
    default: Any
    help: str


def entries(cls: type, prefix: str = "") -> Iterator[Entry]:
    """Every leaf of a config in the order it is written, with the docstring that stands under it. Of groups that
    stand for each other, all leaves are given, one group after the other."""
    hints, notes = typing.get_type_hints(cls), _docstrings(cls)
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        for group in groups_of(kind):
            yield from entries(group, f"{prefix}{field.name}.")
        if not groups_of(kind):
            yield Entry(f"{prefix}{field.name}", kind, _default(field), notes.get(field.name, ""))


def add_flags(parser: argparse.ArgumentParser, cls: type, optional: Iterable[str] = ()) -> None:
    """A `--flag` for every leaf of a flat config; `from_flags` reads them back. `optional` leaves may be left out."""
    for entry in entries(cls):
        flag = "--" + entry.key.replace("_", "-")
        shown = "" if entry.default in (None, dataclasses.MISSING, "", ()) else f" (default: {entry.default})"
        options: dict[str, Any] = {
            "help": (entry.help + shown).replace("%", "%%"),
            "default": argparse.SUPPRESS,
            "required": entry.default is dataclasses.MISSING and entry.key not in optional,
        }
        if entry.kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif typing.get_origin(entry.kind) in (list, tuple):
            options |= {"nargs": "+", "metavar": entry.key.upper()}
        else:
            options["metavar"] = "N" if entry.kind in (int, float) else entry.key.upper()
            if typing.get_origin(entry.kind) is Literal:
                options["metavar"] = "{" + ",".join(map(str, typing.get_args(entry.kind))) + "}"
        parser.add_argument(flag, dest=entry.key, **options)


def from_flags(cls: type[Config], flags: argparse.Namespace, **fixed: Any) -> Config:
    """The config that the parsed flags describe; an error names the flag as the user typed it."""
    leaves = {entry.key: getattr(flags, entry.key) for entry in entries(cls) if hasattr(flags, entry.key)}
    try:
        return build(cls, leaves | fixed)
    except ValueError as error:
        first, space, rest = str(error).partition(" ")
        flag = f"--{first.replace('_', '-')}" if first in leaves else first
        raise ValueError(flag + space + rest) from None


def plain(config: Any) -> Any:
    """A config as nested dictionaries and lists, ready for YAML or JSON."""
    if dataclasses.is_dataclass(config):
        return {field.name: plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    return [plain(item) for item in config] if isinstance(config, (list, tuple)) else config


def part(config: Any, cls: type[Config]) -> Config:
    """The fields that `cls` knows of a larger config."""
    return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})  # type: ignore[arg-type]


def groups_of(kind: Any) -> list[type]:
    """The dataclass that a field holds, or those of which it holds one; nothing for a leaf."""
    members = typing.get_args(kind) if typing.get_origin(kind) in (Union, types.UnionType) else (kind,)
    return list(members) if all(dataclasses.is_dataclass(member) for member in members) else []


def _told_apart(members: list[type], values: Any, prefix: str) -> type:
    """The member whose one-valued Literal field (such as `architecture`) has the value given."""
    tags = {}
    for member in members:
        hints = typing.get_type_hints(member)
        name = next(
            name for name, hint in hints.items() if typing.get_origin(hint) is Literal and len(hint.__args__) == 1
        )
        tags[hints[name].__args__[0]] = member
    given = values.get(name) if isinstance(values, Mapping) else None
    return tags[coerce(given, Literal[tuple(tags)], f"{prefix}{name}")]


def _nearest(word: str, known: Iterable[Any]) -> str:
    match = nearest(word, map(str, known))
    return f"; did you mean {match!r}?" if match else ""


def _coerce_union(value: Any, kinds: tuple[Any, ...], key: str) -> Any:
    if type(None) in kinds and (value is None or value in ("null", "none", "None")):
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    # A list is only tried for what looks like one, so that `str | list[str]` keeps a plain string.
    listed = isinstance(value, (list, tuple)) or (isinstance(value, str) and value.startswith("["))
    ordered = sorted(kinds, key=lambda kind: (typing.get_origin(kind) in (list, tuple)) != listed)
    problem = None
    for kind in ordered:
        try:
            if dataclasses.is_dataclass(kind):
                return build(typing.cast(type, kind), value, f"{key}.")
            return coerce(value, kind, key)
        except ValueError as error:
            problem = problem or error
    raise problem or ValueError(f"{key}: no type fits {_show(value)}")


def _listed(value: Any, key: str) -> list[Any]:
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            import yaml

            try:
                value = yaml.safe_load(text)
            except yaml.YAMLError:
                raise ValueError(f"{key} is not a list that YAML can read: {_show(value)}") from None
        else:
            value = [part.strip() for part in text.split(",")] if text else []
    if not isinstance(value, (list, tuple)):
        value = [value]
    return list(value)


def _number(value: Any) -> float | int | None:
    """None for what is no number, or none that a float can hold."""
    try:
        whole = isinstance(value, int) or (isinstance(value, str) and value.strip().lstrip("+-").isdecimal())
        number = int(value) if whole else float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) <= sys.float_info.max else None


def _required(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if _default(field) is dataclasses.MISSING]


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _keys(cls: type, prefix: str) -> list[str]:
    groups = [prefix + field.name for field in dataclasses.fields(cls)]
    return groups + [entry.key for entry in entries(cls, prefix)]


def _name(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(kind, str(kind))


def _show(value: Any) -> str:
    return textwrap.shorten(repr(value), 80)


@cache
def _docstrings(cls: type) -> dict[str, str]:
    """The string literal under each field, as the help a user reads; inherited fields bring theirs."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    notes: dict[str, str] = {}
    for base in reversed(cls.__bases__):
        notes |= _docstrings(base) if dataclasses.is_dataclass(base) else {}
    for field, note in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            notes[field.target.id] = " ".join(str(note.value.value).split())
    return notes
