"""Queries and keys enter, the same turned by angles that grow with a token's position leave."""

# T tokens in the pack, n of query, key and value, H heads, E channels per head, P planes of two channels each

from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertkit.model.encoder import project
from bertkit.model.products.linear import linear


class Rotation(NamedTuple):
    """By how much each token's channels are turned."""

    cos: Tensor
    """(T, 1, 1, E/2), and so are the sines."""
    sin: Tensor
    factors: Tensor | None
    """(T, 3, 1, E/2): by which complex numbers queries, keys and values are multiplied, values by 1. None where a
    compiler or a GPU takes the cosines and sines."""

    @classmethod
    def of(cls, position_ids_T: Tensor, head_size: int, theta: float) -> "Rotation":
        frequency = _frequencies(head_size, theta, position_ids_T.device)
        angle = (position_ids_T.float()[:, None] * frequency)[:, None, None]
        cos, sin, factors = angle.cos(), angle.sin(), None
        if angle.device.type == "cpu" and not torch.compiler.is_compiling():
            turn = torch.complex(cos, sin)
            factors = torch.cat((turn, turn, torch.ones_like(turn)), dim=1)
        return cls(cos, sin, factors)

    def at(self, index_M: Tensor) -> "Rotation":
        factors = None if self.factors is None else self.factors[index_M]
        return Rotation(self.cos[index_M], self.sin[index_M], factors)


def project_rotated(
    qkv: nn.Linear, hidden_TD: Tensor, num_heads: int, rotation: Rotation, first: int = 0, last: int = 3
) -> Tensor:
    """Queries, keys and values of a fused projection, (T, 3, H, E), or a range of the three; queries and keys turned to
    their positions.

    On a CPU, in float32, a plane is a complex number, so turning is one product. Its two channels must lie side by side
    then, which changes the order of the channels of queries and keys alike, and so no product of the two. Either the
    weights are put in this order or what they give, whichever is less.
    """
    parts, count = (last - first, num_heads, -1), min(last, 2) - first
    if rotation.factors is None or not hidden_TD.dtype == qkv.weight.dtype == torch.float32:
        return rotate(project(qkv, hidden_TD, num_heads, first, last), rotation, count)
    if len(hidden_TD) <= qkv.in_features:
        values_TnHE = _side_by_side(project(qkv, hidden_TD, num_heads, first, last), count, 1)
    else:
        rows = slice(first * qkv.in_features, last * qkv.in_features)
        weight = _side_by_side(qkv.weight[rows].unflatten(0, parts), count, 0).flatten(0, 2)
        bias = None if qkv.bias is None else _side_by_side(qkv.bias[rows].unflatten(0, parts), count, 0).flatten()
        values_TnHE = linear(hidden_TD, weight, bias).unflatten(1, parts)
    planes_TnHP = torch.view_as_complex(values_TnHE.unflatten(3, (-1, 2)))
    return torch.view_as_real(planes_TnHP * rotation.factors[:, first:last]).flatten(3)


def _side_by_side(values: Tensor, count: int, dim: int) -> Tensor:
    """Bring the two channels of a plane together, in the first `count` of n, which are counted at `dim`; heads and
    channels come after it."""
    planes, rest = values.tensor_split([count], dim)
    planes = planes.unflatten(dim + 2, (2, -1)).transpose(dim + 2, dim + 3).flatten(dim + 2, dim + 3)
    return torch.cat((planes, rest), dim)


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
