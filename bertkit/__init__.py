"""bertkit: raw text to a BERT-style encoder, and the encoder to a tagger."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertkit.evaluate.fill import FillMask as FillMask
    from bertkit.finetune.predict.tagger import Tagger as Tagger
    from bertkit.finetune.writing.writer import Writer as Writer
    from bertkit.hf import load as load
    from bertkit.hf import save as save

__version__ = "0.1.0"

# Imported on first use: torch alone takes longer than most commands.
_HOMES = {
    "FillMask": "bertkit.evaluate.fill",
    "Tagger": "bertkit.finetune.predict.tagger",
    "Writer": "bertkit.finetune.writing.writer",
    "load": "bertkit.hf",
    "save": "bertkit.hf",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
