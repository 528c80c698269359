"""Muon for the matrices inside the layers, AdamW for the rest."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor import DTensor

from bertkit.config.sections import OptimConfig
from bertkit.run.optim import Parameters
from bertkit.run.optim.adamw import adamw

# K matrices of one shape, R rows, C columns, N maps of one shape that they hold

# Polynomials ax + bx³ + cx⁵, one after the other. Each is the nearest to 1 on what the one before it made of
# [0.01, 1.02]: above 1 because a norm in half precision is rounded.
_POLYNOMIALS = ((7.9424, -22.2873, 15.8239), (3.6168, -2.6555, 0.5127), (2.6681, -1.9508, 0.4363))


def muon(parameters: Parameters, config: OptimConfig) -> list[torch.optim.Optimizer]:
    rest = adamw(parameters._replace(matrices=[]), config)
    if not parameters.matrices:
        return rest
    groups = [
        {"params": group.params, "lr": config.muon_lr * group.lr_scale, "maps": group.maps}
        for group in parameters.matrices
    ]
    return [Muon(groups, config.muon_lr, config.momentum, config.weight_decay), *rest]


class Muon(torch.optim.Optimizer):
    """Momentum whose every update is made orthogonal, so that all directions of a map learn alike.

    A matrix may hold several maps, such as those of the heads: a group's `maps` says how many lie above each other and
    how many side by side. Updates have a root mean square near 0.2 whatever the shape, as AdamW's do. The
    orthogonalisation runs in bf16 where that is fast (CUDA) and in fp32 elsewhere; equal shapes are done in one batch,
    which ranks share.
    """

    def __init__(self, params: Iterable[Any], lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "maps": (1, 1)})

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is None
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for param in group["params"]:
                if param.grad is not None:
                    by_shape[param.shape].append(param)
            for params in by_shape.values():
                self._step_matrices(params, group)

    def _step_matrices(self, params: list[Tensor], group: dict) -> None:
        for param in params:
            if not self.state[param]:
                self.state[param]["momentum"] = torch.zeros_like(param)
        weights, grads, momenta = (
            [_shard(tensor) for tensor in tensors]
            for tensors in (params, [param.grad for param in params], [self.state[p]["momentum"] for p in params])
        )
        torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
        maps, shape = group["maps"], params[0].shape
        updates = orthogonalize_together(torch._foreach_lerp(grads, momenta, group["momentum"]), params[0], maps)
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(
            weights, updates, alpha=-group["lr"] * 0.2 * max(shape[0] // maps[0], shape[1] // maps[1]) ** 0.5
        )


def orthogonalize_together(shards: Sequence[Tensor], param: Tensor, maps: tuple[int, int] = (1, 1)) -> list[Tensor]:
    """Orthogonalize matrices of one shape, of which this rank has these shards, and return its shards of the result.

    Each rank does its share of the matrices: under FSDP it gets all rows of those from the others, and sends them
    theirs back. All ranks take part.
    """
    num_ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    shards_KRC = torch.stack(_padded(shards, param, num_ranks))
    if num_ranks == 1:
        return list(orthogonalize(shards_KRC, maps))
    dtype, share = shards_KRC.dtype, math.ceil(len(shards) / num_ranks)
    shards_KRC = F.pad(shards_KRC.to(_precision(shards_KRC)), (0, 0, 0, 0, 0, share * num_ranks - len(shards)))
    if isinstance(param, DTensor):
        whole_KRC = _exchanged(shards_KRC.unflatten(0, (num_ranks, share))).transpose(0, 1).flatten(1, 2)
        whole_KRC[:, : param.shape[0]] = orthogonalize(whole_KRC[:, : param.shape[0]], maps)
        parts = _exchanged(whole_KRC.unflatten(1, (num_ranks, -1)).transpose(0, 1).contiguous()).flatten(0, 1)
        return [part[: len(shard)].to(dtype) for part, shard in zip(parts, shards, strict=False)]
    mine = orthogonalize(shards_KRC.unflatten(0, (num_ranks, share))[torch.distributed.get_rank()], maps)
    parts = torch.empty_like(shards_KRC)
    torch.distributed.all_gather(list(parts.chunk(num_ranks)), mine.contiguous())
    return [part.to(dtype) for part, _ in zip(parts, shards, strict=False)]


def _padded(shards: Sequence[Tensor], param: Tensor, num_ranks: int) -> list[Tensor]:
    """FSDP gives the last ranks fewer rows, or none; messages need as many from each."""
    num_rows = math.ceil(param.shape[0] / num_ranks) if isinstance(param, DTensor) else param.shape[0]
    return [F.pad(shard, (0, 0, 0, num_rows - len(shard))) if len(shard) < num_rows else shard for shard in shards]


def _exchanged(parts: Tensor) -> Tensor:
    """Part i of every rank goes to rank i."""
    received = torch.empty_like(parts)
    torch.distributed.all_to_all_single(received, parts)
    return received


def _shard(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def orthogonalize(matrices_KRC: Tensor, maps: tuple[int, int] = (1, 1)) -> Tensor:
    """The nearest orthogonal matrices, roughly: every singular value of at least 1% of a map's norm ends between 0.7
    and 1.3. `maps` says how many maps lie above each other and side by side in a matrix; each is taken by itself."""
    above, beside = maps
    parts_KabRC = matrices_KRC.unflatten(2, (beside, -1)).unflatten(1, (above, -1)).transpose(2, 3)
    # Laid out alike for any number of matrices: products of another layout end in other bits, and ranks share matrices.
    x_NRC = parts_KabRC.flatten(0, 2).to(_precision(matrices_KRC)).contiguous()
    transposed = x_NRC.shape[1] > x_NRC.shape[2]
    if transposed:
        x_NRC = x_NRC.mT
    x_NRC = x_NRC / x_NRC.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    wide = x_NRC.shape[2] >= 2 * x_NRC.shape[1]
    x_NRC = _by_gram(x_NRC) if wide and x_NRC.dtype == torch.float32 else _by_turns(x_NRC)
    parts_KabRC = (x_NRC.mT if transposed else x_NRC).reshape(parts_KabRC.shape)
    return parts_KabRC.transpose(2, 3).reshape(matrices_KRC.shape).to(matrices_KRC.dtype)


def _by_turns(x_NRC: Tensor) -> Tensor:
    """One polynomial after the other."""
    for a, b, c in _POLYNOMIALS:
        gram_NRR = x_NRC @ x_NRC.mT
        x_NRC = torch.baddbmm(x_NRC, torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=b, alpha=c), x_NRC, beta=a)
    return x_NRC


def _by_gram(x_NRC: Tensor) -> Tensor:
    """The same of wide matrices with fewer operations: the polynomials multiply x by something that depends on its
    Gram matrix alone, which is small, so they are put together there."""
    first_NRR = x_NRC @ x_NRC.mT
    product_NRR: Tensor | None = None
    for a, b, c in _POLYNOMIALS:
        gram_NRR = first_NRR if product_NRR is None else product_NRR @ first_NRR @ product_NRR
        factor_NRR = torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=b, alpha=c)
        factor_NRR.diagonal(dim1=1, dim2=2).add_(a)
        product_NRR = factor_NRR if product_NRR is None else factor_NRR @ product_NRR
    assert product_NRR is not None
    return product_NRR @ x_NRC


def _precision(values: Tensor) -> torch.dtype:
    """Half where products in it are fast."""
    return torch.bfloat16 if values.is_cuda else torch.float32
