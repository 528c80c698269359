"""Initial weights that are a function of the seed alone."""

import hashlib
import math

import torch
from torch import Tensor, nn

from bertkit.model.encoder import Encoder


def initialize(module: nn.Module, encoder: Encoder, seed: int, device: torch.device | str = "cpu") -> None:
    """Allocate and fill every parameter of an encoder, or of a head on it. Each draws from a stream of its own, keyed
    by seed and name, so a part added to a model leaves the others as they were; no global generator is read."""
    module.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            # Drawn on the CPU, so that every device starts from the same numbers.
            parameter.copy_(_initial(name, parameter.shape, encoder, _generator(seed, name)))


def normal(shape: torch.Size, std: float, generator: torch.Generator, cutoff: float = math.inf) -> Tensor:
    """Normal numbers, drawn again where they lie beyond `cutoff` on either side."""
    if math.isinf(cutoff):
        return torch.empty(shape).normal_(std=std, generator=generator)
    return nn.init.trunc_normal_(torch.empty(shape), std=std, a=-cutoff, b=cutoff, generator=generator)


def sinusoids(num_positions: int, width: int) -> Tensor:
    """(positions, width): sines in even columns, cosines in odd ones, wavelengths from 2π to 10000 · 2π."""
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    column = torch.arange(width)
    angle = position / 10_000 ** ((column - column % 2) / width)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos()).float()


def _initial(name: str, shape: torch.Size, encoder: Encoder, generator: torch.Generator) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape) if name.endswith("norm.weight") else torch.zeros(shape)
    return encoder.initial(name, shape, generator)


def _generator(seed: int, name: str) -> torch.Generator:
    key = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)
