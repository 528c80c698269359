"""The encoder families by the name that recipes call them: a config that says its shape, and the class that has it."""

from importlib import import_module
from typing import Any, NamedTuple

from bertkit.model.config import BertConfig, ModernBertConfig
from data_pipelines.table import Table


class Family(NamedTuple):
    config: type
    """Dataclass of the encoder's shape; every field is a key of the recipe's model section."""
    encoder_home: str
    """module:CLASS of the encoder, imported when one is built: naming families imports no torch."""

    @property
    def encoder(self) -> Any:
        module, _, name = self.encoder_home.partition(":")
        return getattr(import_module(module), name)


FAMILIES: Table[Family] = Table(
    "encoder family",
    {
        "bert": Family(BertConfig, "bertkit.model.bert:Bert"),
        "modernbert": Family(ModernBertConfig, "bertkit.model.modernbert:ModernBert"),
    },
)
