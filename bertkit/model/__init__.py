"""The encoders, their heads, and packing.

Names are imported on first use, so that `bertkit.model.config` does not pay for torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertkit.model.bert import Bert as Bert
    from bertkit.model.build import build_encoder as build_encoder
    from bertkit.model.config import BertConfig as BertConfig
    from bertkit.model.config import EncoderConfig as EncoderConfig
    from bertkit.model.config import ModernBertConfig as ModernBertConfig
    from bertkit.model.encoder import Encoder as Encoder
    from bertkit.model.heads import MaskedLM as MaskedLM
    from bertkit.model.heads import SequenceClassifier as SequenceClassifier
    from bertkit.model.heads import TokenTagger as TokenTagger
    from bertkit.model.modernbert import ModernBert as ModernBert
    from bertkit.model.packing import Pack as Pack
    from bertkit.model.packing import pack as pack
    from bertkit.model.packing import unpack as unpack

_HOMES = {
    "Bert": "bert",
    "BertConfig": "config",
    "Encoder": "encoder",
    "EncoderConfig": "config",
    "MaskedLM": "heads",
    "ModernBert": "modernbert",
    "ModernBertConfig": "config",
    "Pack": "packing",
    "SequenceClassifier": "heads",
    "TokenTagger": "heads",
    "build_encoder": "build",
    "pack": "packing",
    "unpack": "packing",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
