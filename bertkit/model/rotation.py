"""Queries and keys enter, the same turned by angles that grow with a token's position leave."""

# T tokens in the pack, n of query, key and value, H heads, E channels per head

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """By how much each token's channels are turned: cosines and sines, (T, 1, 1, E/2)."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, position_ids_T: Tensor, head_size: int, theta: float) -> "Rotation":
        frequency = _frequencies(head_size, theta, position_ids_T.device)
        angle = (position_ids_T.float()[:, None] * frequency)[:, None, None]
        return cls(angle.cos(), angle.sin())

    def at(self, index_M: Tensor) -> "Rotation":
        return Rotation(self.cos[index_M], self.sin[index_M])


def looking_at(distance: int, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """A query and a key, (E,) each. Turned to their positions, their product is 1 where the key lies `distance` places
    after the query, and less elsewhere."""
    frequency = _frequencies(head_size, theta)
    # Fast planes tell neighbouring places apart.
    size = (frequency / frequency.sum()).sqrt()
    angle = frequency * distance
    return torch.cat((size * angle.cos(), size * angle.sin())), torch.cat((size, torch.zeros_like(size)))


def slow_channels(distance: int, head_size: int, theta: float) -> Tensor:
    """Channels that turn by less than a radian over this distance, plane by plane."""
    slow = torch.nonzero(_frequencies(head_size, theta) * distance < 1)
    return torch.cat((slow, slow + head_size // 2), dim=1).flatten()


def rotate(values_TnHE: Tensor, rotation: Rotation, count: int = 1) -> Tensor:
    """Turn the first `count` of n: channel i of the first half forms a plane with channel i of the second half."""
    if torch.compiler.is_compiling():
        return _formula(values_TnHE, rotation, count)
    return torch.ops.bertkit.rotate(values_TnHE, rotation.cos, rotation.sin, count)


def _frequencies(head_size: int, theta: float, device: torch.device | None = None) -> Tensor:
    """By how much each plane turns from one position to the next, (E/2,)."""
    channel = torch.arange(0, head_size, 2, dtype=torch.float32, device=device)
    return 1.0 / theta ** (channel / head_size)


def _formula(values_TnHE: Tensor, rotation: Rotation, count: int) -> Tensor:
    """The same in the open, for a compiler to fuse into one kernel."""
    first, second = values_TnHE[:, :count].chunk(2, dim=-1)
    turned = (first * rotation.cos - second * rotation.sin, second * rotation.cos + first * rotation.sin)
    return torch.cat((torch.cat(turned, dim=-1).to(values_TnHE.dtype), values_TnHE[:, count:]), dim=1)


@torch.library.custom_op("bertkit::rotate", mutates_args=())
def _rotate(values_TnHE: Tensor, cos: Tensor, sin: Tensor, count: int) -> Tensor:
    """One operator that writes into one array; as a formula it would fill eight."""
    turned_TnHE = torch.empty_like(values_TnHE)
    turned_TnHE[:, count:] = values_TnHE[:, count:]
    first, second = values_TnHE[:, :count].chunk(2, dim=-1)
    new_first, new_second = turned_TnHE[:, :count].chunk(2, dim=-1)
    # In half precision each product is computed in float32 and stored in half: no temporary is wider than the values.
    torch.mul(first, cos, out=new_first).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=new_second).addcmul_(first, sin)
    return turned_TnHE


@_rotate.register_fake
def _(values_TnHE, cos, sin, count):
    return torch.empty_like(values_TnHE)


def _save_for_backward(ctx, inputs, output):
    _, cos, sin, ctx.count = inputs
    ctx.save_for_backward(cos, sin)


def _backward(ctx, grad_TnHE):
    cos, sin = ctx.saved_tensors
    return torch.ops.bertkit.rotate(grad_TnHE.contiguous(), cos, -sin, ctx.count), None, None, None


_rotate.register_autograd(_backward, setup_context=_save_for_backward)
