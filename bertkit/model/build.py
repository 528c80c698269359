"""Builds encoders from their configs."""

import torch
from torch import nn

from bertkit.model.config import EncoderConfig
from bertkit.model.encoder import Encoder
from bertkit.model.families import family_of
from bertkit.model.initialization import fill, initialize


def build_encoder(config: EncoderConfig, seed: int = 0) -> Encoder:
    """The encoder of a config; the same seed gives the same weights, and no global generator is touched."""
    return fill(outline_encoder(config, seed))


def outline_encoder(config: EncoderConfig, seed: int = 0, pooler: bool = False) -> Encoder:
    """The encoder's modules without memory for their weights, which know their initial values."""
    with torch.device("meta"):
        encoder = family_of(config).encoder(config)
        if pooler:
            encoder.pooler = nn.Linear(config.hidden_size, config.hidden_size)
    initialize(encoder, encoder, seed)
    return encoder
