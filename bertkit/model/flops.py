"""Counts the multiplications and additions in a model's matrix products."""

from functools import cache

from torch import nn

from bertkit.model.config import EncoderConfig
from bertkit.model.heads import ModelWithHead
from bertkit.model.initialization import outline_encoder


def forward_flops(config: EncoderConfig, seq_len: int) -> int:
    """Of an encoder, for one token of a sequence of `seq_len`."""
    seen = [seq_len if window is None else min(seq_len, 2 * window + 1) for window in config.windows()]
    return _linear_flops(config) + 4 * config.hidden_size * sum(seen)


def head_flops(model: ModelWithHead) -> int:
    """Of a head, for one target."""
    return layer_flops(model.head) + 2 * model.decoder_weights()


def layer_flops(module: nn.Module) -> int:
    """Of every linear layer, once."""
    return 2 * sum(part.weight.numel() for part in module.modules() if isinstance(part, nn.Linear))


@cache
def _linear_flops(config: EncoderConfig) -> int:
    return layer_flops(outline_encoder(config).layers)
