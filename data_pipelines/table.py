"""Tables of what has a name: formats, masking units, optimizers, objectives, tasks, families.

A row is an object, or "module:NAME", which is imported when the row is first used: a help text can list the rows
without importing them. A plugin adds a row with `add`, and no other place has to know it.
"""

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")


class Table(Generic[Row]):
    """Rows by name. A name that nobody added is refused with the nearest one, never taken for another."""

    def __init__(self, what: str, rows: Mapping[str, Row | str]):
        self.what = what
        """What a row is, as an error calls it: "masking unit", "task"."""
        self._rows: dict[str, Row | str] = dict(rows)

    def add(self, name: str, row: Row) -> None:
        if name in self._rows:
            raise ValueError(f"there is already a {self.what} {name!r}")
        self._rows[name] = row

    def __getitem__(self, name: str) -> Row:
        if name not in self._rows:
            hint = did_you_mean(name, self._rows) or f"; known are {', '.join(self._rows)}"
            raise ValueError(f"unknown {self.what} {name!r}{hint}")
        row = self._rows[name]
        if isinstance(row, str):
            module, _, attribute = row.partition(":")
            row = self._rows[name] = getattr(import_module(module), attribute)
        return row

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def front_door(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are imported from their modules on first use."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """How a message about an unknown word ends; empty where no known one is near."""
    match = nearest(word, known)
    return f"; did you mean {match!r}?" if match else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a typo most likely meant; of dotted keys the last part alone counts too."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if not close:
        last_parts = {key.rpartition(".")[2]: key for key in reversed(known)}
        match = difflib.get_close_matches(word.rpartition(".")[2], last_parts, n=1, cutoff=0.7)
        close = [last_parts[part] for part in match]
    return close[0] if close else None
