"""The encoder families by the name that recipes use: a config for the shape, and the class that computes it."""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from bertkit.model.config import BertConfig, EncoderConfig, ModernBertConfig, set_by
from data_pipelines.table import Table

if TYPE_CHECKING:
    from bertkit.model.encoder import Encoder


class Family(NamedTuple):
    config: type[EncoderConfig]
    """Dataclass of the encoder's shape; every field is a key of the recipe's model section but those of `set_by`."""
    encoder_home: str
    """module:CLASS of the encoder, imported when one is built: naming families imports no torch."""

    @property
    def encoder(self) -> "type[Encoder]":
        module, _, name = self.encoder_home.partition(":")
        return getattr(import_module(module), name)

    @property
    def set_by(self) -> dict[str, str]:
        """The fields that no recipe sets, each with what sets it."""
        return set_by(self.config)


FAMILIES: Table[Family] = Table(
    "encoder family",
    {
        "bert": Family(BertConfig, "bertkit.model.bert:Bert"),
        "modernbert": Family(ModernBertConfig, "bertkit.model.modernbert:ModernBert"),
    },
)


def family_of(config: EncoderConfig) -> Family:
    """The family whose config this is; one that no row has is refused, never taken for another."""
    for name in FAMILIES:
        if FAMILIES[name].config is type(config):
            return FAMILIES[name]
    raise ValueError(
        f"no encoder family has a {type(config).__name__}; known are {', '.join(FAMILIES)}; FAMILIES.add adds one"
    )
