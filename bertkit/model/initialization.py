"""Initial weights that are a function of the seed alone, and outlines: models that know their weights without them.

The tensors of an outline lie on the device "meta" and have no memory. Each can have values that are made when they are
asked for, drawn from a seed or read from a file. So a model can be sharded first and filled afterwards, tensor by
tensor, and is never in memory as a whole.
"""

import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bertkit.model.config import EncoderConfig
from bertkit.model.encoder import Encoder
from bertkit.model.families import family_of

Module = TypeVar("Module", bound=nn.Module)
Values = Callable[[], Tensor]
_VALUES = "bertkit_values"


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


def initialize(module: nn.Module, encoder: Encoder, seed: int) -> None:
    """Give every parameter of an encoder's outline, or of that of a head on it, its initial values, where the encoder
    is: a head on an outline stays one. Each draws from its own stream, keyed by seed and name, so a part added to
    a model leaves the others as they were; no global generator is read."""
    for name, parameter in module.named_parameters():
        give_values(parameter, partial(_initial, name, parameter.shape, encoder, seed))
    fill(module, encoder.tokens.weight.device)


def fill(module: Module, device: torch.device | str = "cpu") -> Module:
    """The same module, with memory and values for every tensor of it that had none."""
    if torch.device(device).type == "meta":
        return module
    made: dict[Tensor, Tensor] = {}
    places: list[dict[str, Any]] = [held for part in module.modules() for held in (part._parameters, part._buffers)]
    for tensors in places:
        for name, tensor in tensors.items():
            if tensor is not None and tensor.is_meta:
                if tensor not in made:
                    made[tensor] = _filled(tensor, device)
                tensors[name] = made[tensor]
    return module


def _filled(tensor: Tensor, device: torch.device | str) -> Tensor:
    # Drawn on the CPU, so that every device starts from the same numbers.
    values = values_of(tensor)().to(device)
    return nn.Parameter(values, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else values


def give_values(tensor: Tensor, values: Values) -> None:
    """Say how the values of an outline's tensor are made."""
    setattr(tensor, _VALUES, values)


def values_of(tensor: Tensor) -> Values:
    """What makes the values of a tensor, whether or not it is one of an outline."""
    if not tensor.is_meta:
        return lambda: tensor.detach().clone()
    values = getattr(tensor, _VALUES, None)
    if values is None:
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} has no values: what is built on an outline, as models are under "
            "FSDP, must take its tensors themselves, not copies of them"
        )
    return values


def changeable(tensor: Tensor) -> Tensor:
    """The values of a tensor, to be changed in place; those of an outline are made now, and kept for it."""
    if not tensor.is_meta:
        return tensor
    values = values_of(tensor)()
    give_values(tensor, lambda: values)
    return values


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


def _initial(name: str, shape: torch.Size, encoder: Encoder, seed: int) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape) if name.endswith("norm.weight") else torch.zeros(shape)
    return encoder.initial(name, shape, _generator(seed, name))


def _generator(seed: int, name: str) -> torch.Generator:
    key = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)
