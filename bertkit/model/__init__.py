"""The encoders, their heads, and packing.

Names are imported on first use, so that `bertkit.model.config` does not pay for torch.
"""

from typing import TYPE_CHECKING

from data_pipelines.table import front_door

if TYPE_CHECKING:
    from bertkit.model.bert import Bert as Bert
    from bertkit.model.config import BertConfig as BertConfig
    from bertkit.model.config import EncoderConfig as EncoderConfig
    from bertkit.model.config import ModernBertConfig as ModernBertConfig
    from bertkit.model.encoder import Encoder as Encoder
    from bertkit.model.heads import MaskedLM as MaskedLM
    from bertkit.model.heads import SequenceClassifier as SequenceClassifier
    from bertkit.model.heads import TokenTagger as TokenTagger
    from bertkit.model.initialization import build_encoder as build_encoder
    from bertkit.model.modernbert import ModernBert as ModernBert
    from bertkit.model.packing import Pack as Pack
    from bertkit.model.packing import pack as pack
    from bertkit.model.packing import unpack as unpack

_HOMES = {
    "Bert": "bertkit.model.bert",
    "BertConfig": "bertkit.model.config",
    "Encoder": "bertkit.model.encoder",
    "EncoderConfig": "bertkit.model.config",
    "MaskedLM": "bertkit.model.heads",
    "ModernBert": "bertkit.model.modernbert",
    "ModernBertConfig": "bertkit.model.config",
    "Pack": "bertkit.model.packing",
    "SequenceClassifier": "bertkit.model.heads",
    "TokenTagger": "bertkit.model.heads",
    "build_encoder": "bertkit.model.initialization",
    "pack": "bertkit.model.packing",
    "unpack": "bertkit.model.packing",
}
__getattr__, __dir__ = front_door(__name__, _HOMES)
