"""Models from and to Hugging Face folders, without transformers.

Names are imported on first use, so that `bertkit.hf.folder` does not pay for torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertkit.hf.models import Model as Model
    from bertkit.hf.models import load as load
    from bertkit.hf.models import load_outline as load_outline
    from bertkit.hf.models import save as save

_HOMES = dict.fromkeys(("Model", "load", "load_outline", "save"), "bertkit.hf.models")


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
