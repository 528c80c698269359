"""Builds encoders from their configs."""

import torch
from torch import nn

from bertkit.model.config import EncoderConfig
from bertkit.model.encoder import Encoder
from bertkit.model.families import family_of
from bertkit.model.initialization import initialize


def build_encoder(config: EncoderConfig, seed: int = 0) -> Encoder:
    """The encoder of a config; the same seed gives the same weights, and no global generator is touched."""
    encoder = outline_encoder(config)
    initialize(encoder, encoder, seed)
    return encoder


def outline_encoder(config: EncoderConfig, pooler: bool = False) -> Encoder:
    """The encoder's modules without memory for their weights, to be filled by a seed or from a file."""
    with torch.device("meta"):
        encoder = family_of(config).encoder(config)
        if pooler:
            encoder.pooler = nn.Linear(config.hidden_size, config.hidden_size)
    return encoder
