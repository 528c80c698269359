"""Modules without values enter; they leave with initial weights that are a function of the seed alone."""

import hashlib
import math

import torch
from torch import Tensor, nn

from bertkit.model.config import BertConfig, EncoderConfig


def initialize(module: nn.Module, config: EncoderConfig, seed: int, device: torch.device | str = "cpu") -> None:
    """Allocate and fill every parameter. Each draws from a stream of its own, keyed by seed and name, so a part
    added to a model leaves the others as they were; no global generator is read."""
    module.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            # Drawn on the CPU, so that every device starts from the same numbers.
            parameter.copy_(_initial(name, parameter.shape, config, _generator(seed, name)))


def _initial(name: str, shape: torch.Size, config: EncoderConfig, generator: torch.Generator) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape) if name.endswith("norm.weight") else torch.zeros(shape)
    if name.endswith("positions.weight") and getattr(config, "position_embedding_type", "") == "sinusoidal":
        # Of the same size as the token embeddings, which they would drown otherwise.
        return sinusoids(*shape) * config.initializer_range * math.sqrt(2)
    std = config.initializer_range
    if isinstance(config, BertConfig):
        return torch.empty(shape).normal_(std=std, generator=generator)
    # What a block adds to the residual stream starts smaller, the more blocks there are.
    if name.endswith(("attention_out.weight", "mlp_out.weight", "dense.weight", "decoder_weight")):
        std /= math.sqrt(2 * config.num_hidden_layers)
    elif name.endswith("classifier.weight"):
        std = config.hidden_size**-0.5
    cutoff = config.initializer_cutoff_factor * std
    return nn.init.trunc_normal_(torch.empty(shape), std=std, a=-cutoff, b=cutoff, generator=generator)


def sinusoids(num_positions: int, width: int) -> Tensor:
    """(positions, width): sines in even columns, cosines in odd ones, wavelengths from 2π to 10000 · 2π."""
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    column = torch.arange(width)
    angle = position / 10_000 ** ((column - column % 2) / width)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos()).float()


def _generator(seed: int, name: str) -> torch.Generator:
    key = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)
