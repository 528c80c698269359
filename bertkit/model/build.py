"""A config and a seed enter, an initialised encoder leaves."""

import torch

from bertkit.model.bert import Bert
from bertkit.model.config import BertConfig, EncoderConfig, ModernBertConfig
from bertkit.model.initialization import initialize
from bertkit.model.modernbert import ModernBert

Encoder = Bert | ModernBert


def build_encoder(config: EncoderConfig, seed: int = 0) -> Encoder:
    """The encoder of a config; the same seed gives the same weights, and no global generator is touched."""
    encoder = outline_encoder(config)
    initialize(encoder, config, seed)
    return encoder


def outline_encoder(config: EncoderConfig, pooler: bool = False) -> Encoder:
    """The encoder's modules without memory for their weights, to be filled by a seed or from a file."""
    with torch.device("meta"):
        if isinstance(config, BertConfig):
            return Bert(config, pooler=pooler)
        assert isinstance(config, ModernBertConfig), config
        return ModernBert(config)
