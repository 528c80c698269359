"""Models from and to Hugging Face folders, without transformers.

Names are imported on first use, so that `bertkit.hf.folder` does not pay for torch.
"""

from typing import TYPE_CHECKING

from data_pipelines.table import front_door

if TYPE_CHECKING:
    from bertkit.hf.models import Model as Model
    from bertkit.hf.models import load as load
    from bertkit.hf.models import load_outline as load_outline
    from bertkit.hf.models import save as save

_HOMES = dict.fromkeys(("Model", "load", "load_outline", "save"), "bertkit.hf.models")
__getattr__, __dir__ = front_door(__name__, _HOMES)
