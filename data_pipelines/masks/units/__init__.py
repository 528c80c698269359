"""Masking units, which are chosen as a whole: one file and one row for each. This file imports nothing heavy."""

from typing import TYPE_CHECKING

from data_pipelines.table import Table

if TYPE_CHECKING:
    from data_pipelines.masks.units.unit import Unit

UNITS: Table["Unit"] = Table(
    "masking unit",
    {
        "token": "data_pipelines.masks.units.token:TOKEN",
        "word": "data_pipelines.masks.units.word:WORD",
        "span": "data_pipelines.masks.units.span:SPAN",
    },
)
