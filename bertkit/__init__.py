"""bertkit: raw text to a BERT-style encoder, and the encoder to a tagger."""

from typing import TYPE_CHECKING

from data_pipelines.table import front_door

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
__getattr__, __dir__ = front_door(__name__, _HOMES)
