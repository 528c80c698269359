"""Untyped text enters (YAML, key=value, flags), checked dataclasses leave, with help from their docstrings.

A field is a value or a group: another dataclass, or one of several that a key selects (`Sections`). Its annotation
may also carry bounds (data_pipelines/bounds.py) and `MAY_CHANGE`.
"""

import argparse
import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from bertkit.config.values import coerce
from data_pipelines.bounds import OneOf, check_choice, marks_of, shown
from data_pipelines.table import did_you_mean

Config = TypeVar("Config")

# Marks a field that may differ when a run resumes: a place, the machine or a habit, not what is computed.
MAY_CHANGE = "may change on resume"


class Sections(NamedTuple):
    """Marks a group that has several kinds."""

    tag: str
    """The key that selects the kind."""
    kinds: Callable[[], Mapping[str, type]]
    """Gives the dataclass for each value of the tag. It is called every time: a plugin may have added one."""


def build(cls: type[Config], values: Mapping[str, Any], prefix: str = "") -> Config:
    """Make a `cls` from nested mappings; every unknown key, wrong type or refused value names its dotted key."""
    return _make(_read(cls, values, prefix), prefix)


def check_keys(cls: type, values: Mapping[str, Any]) -> None:
    """Refuse unknown keys and wrong types, whatever is missing."""
    _read(cls, values, "")


def build_group(cls: type, name: str, values: Mapping[str, Any], base: type | None = None) -> Any:
    """Make one group of a `cls` alone, from the mappings for all of it; with a `base` of the group only that."""
    given = values.get(name, {})
    group = _group(_hints(cls)[name], given, name)
    assert group is not None, f"{name} is not a group"
    read = _read(group, given, f"{name}.")
    if base is not None:
        read = _Read(base, {key: value for key, value in read.values.items() if key in _hints(base)})
    return _make(read, f"{name}.")


class _Read(NamedTuple):
    """Values of a group, each with its type."""

    cls: type
    values: dict[str, Any]


def _read(cls: type, values: Any, prefix: str) -> _Read:
    """All values with their types, before objects are built: a typo is reported before a missing key."""
    hints = _hints(cls)
    if not isinstance(values, Mapping):
        raise ValueError(
            f"{prefix.rstrip('.') or 'the recipe'} is a group of keys, got {shown(values)}; "
            f"write one of them: {', '.join(prefix + name for name in hints)}"
        )
    absent: dict[str, Any] = {name: {} for name in _required(cls) if name not in values and _kinds(hints[name])}
    read = {}
    # A missing group reports its first required key.
    for name, value in {**values, **absent}.items():
        key = f"{prefix}{name}"
        if name not in hints:
            known = [*(prefix + field for field in hints), *(entry.key for entry in entries(cls, prefix))]
            raise ValueError(f"unknown key {key!r}{did_you_mean(key, known)}")
        group = _group(hints[name], value, key)
        read[name] = _read(group, value, f"{key}.") if group else coerce(value, hints[name], key)
    return _Read(cls, read)


def _make(read: _Read, prefix: str) -> Any:
    arguments = {
        name: _make(value, f"{prefix}{name}.") if isinstance(value, _Read) else value
        for name, value in read.values.items()
    }
    missing = [prefix + name for name in _required(read.cls) if name not in arguments]
    if missing:
        raise ValueError(f"{missing[0]} is missing; set it, for example with {missing[0]}=...")
    try:
        return read.cls(**arguments)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from None


def check_names(config: Any, tables: Mapping[str, Collection[str]]) -> None:
    """Refuse a value whose table has no such row. Annotations here cannot name tables of higher-level packages."""
    for key, table in tables.items():
        check_choice(key, attrgetter(key)(config), table)


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


class Entry(NamedTuple):
    """One value of a config as its users see it."""

    key: str
    kind: Any
    default: Any
    """dataclasses.MISSING where a value must be given."""
    help: str
    marks: tuple[Any, ...]
    """What the annotation carries beside the type."""

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values it may have, where they are listed."""
        if typing.get_origin(self.kind) is Literal:
            return typing.get_args(self.kind)
        return next((tuple(mark.names) for mark in self.marks if isinstance(mark, OneOf)), ())


def entries(config: Any, prefix: str = "") -> Iterator[Entry]:
    """Every value of a config in the order it is written, with the docstring under it. A class lists every
    kind of its groups, one after the other; an object only those that it has."""
    cls = config if isinstance(config, type) else type(config)
    hints, kinds, notes = _hints(cls), typing.get_type_hints(cls), help_of(cls)
    for field in dataclasses.fields(cls):
        key, hint = f"{prefix}{field.name}", hints[field.name]
        groups = _kinds(hint) if config is cls else [getattr(config, field.name)] if _kinds(hint) else []
        for group in groups:
            yield from entries(group, f"{key}.")
        if not groups:
            note = field.metadata.get("help") or notes.get(field.name, "")
            yield Entry(key, kinds[field.name], _default(field), note, tuple(marks_of(hint)))


def add_flags(parser: argparse._ActionsContainer, cls: type, optional: Iterable[str] = ()) -> None:
    """A `--flag` for every value of a flat config; `from_flags` reads them back. `optional` ones may be left out."""
    for entry in entries(cls):
        flag = "--" + entry.key.replace("_", "-")
        if any(flag in action.option_strings for action in parser._actions):
            continue  # another config of the same verb has it too
        default = "" if entry.default in (None, dataclasses.MISSING, "", ()) else f" (default: {entry.default})"
        options: dict[str, Any] = {
            "help": (entry.help + default).replace("%", "%%"),
            "default": argparse.SUPPRESS,
            "required": entry.default is dataclasses.MISSING and entry.key not in optional,
        }
        if entry.kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif typing.get_origin(entry.kind) in (list, tuple):
            options |= {"nargs": "+", "metavar": entry.key.upper()}
        elif entry.choices:
            options["metavar"] = "{" + ",".join(map(str, entry.choices)) + "}"
        else:
            options["metavar"] = "N" if entry.kind in (int, float) else entry.key.upper()
        parser.add_argument(flag, dest=entry.key, **options)


def from_flags(cls: type[Config], flags: argparse.Namespace, **fixed: Any) -> Config:
    """The config that the parsed flags describe; an error names the flag as the user typed it."""
    given = {entry.key: getattr(flags, entry.key) for entry in entries(cls) if hasattr(flags, entry.key)}
    try:
        return build(cls, given | fixed)
    except ValueError as error:
        first, space, rest = str(error).partition(" ")
        flag = f"--{first.replace('_', '-')}" if first.rstrip(":").partition("[")[0] in given else first
        raise ValueError(flag + space + rest) from None


def plain(config: Any) -> Any:
    """A config as nested dictionaries and lists, ready for YAML or JSON."""
    if dataclasses.is_dataclass(config):
        return {field.name: plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    return [plain(item) for item in config] if isinstance(config, (list, tuple)) else config


def part(config: Any, cls: type[Config]) -> Config:
    """The fields that `cls` knows of a larger config."""
    return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})  # type: ignore[arg-type]


def _kinds(hint: Any) -> list[type]:
    """The dataclasses that a group may hold; none for a value."""
    if sections := _sections(hint):
        return list(sections.kinds().values())
    return [typing.cast(type, hint)] if dataclasses.is_dataclass(hint) else []


def _group(hint: Any, values: Any, key: str) -> type | None:
    """The dataclass that these values of a group are for; None for a value."""
    sections = _sections(hint)
    if sections is None or not isinstance(values, Mapping):
        return next(iter(_kinds(hint)), None)
    kinds = sections.kinds()
    return kinds[coerce(values.get(sections.tag), Literal[tuple(kinds)], f"{key}.{sections.tag}")]


def _sections(hint: Any) -> Sections | None:
    marks = hint.__metadata__ if typing.get_origin(hint) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Sections)), None)


@cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _required(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if _default(field) is dataclasses.MISSING]


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@cache
def help_of(cls: type) -> dict[str, str]:
    """The string literal under each field, as the help a user reads; inherited fields included."""
    notes: dict[str, str] = {}
    for base in reversed(cls.__bases__):
        notes |= help_of(base) if dataclasses.is_dataclass(base) else {}
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError):  # made while the program runs
        return notes
    assert isinstance(body, ast.ClassDef)
    for field, note in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            notes[field.target.id] = " ".join(str(note.value.value).split())
    return notes
