"""Muon for the matrices inside the layers, AdamW for the rest."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bertkit.config.sections import OptimConfig
from bertkit.run.optim import Parameters
from bertkit.run.optim.adamw import adamw
from bertkit.run.state import gather_full, shard_like

# K matrices of one shape, R rows, C columns


def muon(parameters: Parameters, config: OptimConfig) -> list[torch.optim.Optimizer]:
    rest = adamw(parameters._replace(matrices=[]), config)
    if not parameters.matrices:
        return rest
    groups = [{"params": group.params, "lr": config.muon_lr * group.lr_scale} for group in parameters.matrices]
    return [Muon(groups, config.muon_lr, config.momentum, config.weight_decay), *rest]


class Muon(torch.optim.Optimizer):
    """Momentum whose every update is made orthogonal, so that all directions of a matrix learn alike.

    Updates have a root mean square near 0.2 whatever the shape, as AdamW's do. The orthogonalisation runs in
    bf16 where that is fast (CUDA) and in fp32 elsewhere; equal shapes are done in one batch.
    """

    def __init__(self, params: Iterable[Any], lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

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
        updates = []
        for param in params:
            state = self.state[param]
            if not state:
                state["momentum"] = torch.zeros_like(param)
            assert param.grad is not None
            state["momentum"].lerp_(param.grad, 1 - group["momentum"])
            updates.append(gather_full(param.grad.lerp(state["momentum"], group["momentum"])))
        orthogonal_KRC = orthogonalize(torch.stack(updates))
        size = 0.2 * max(params[0].shape) ** 0.5
        for param, update in zip(params, orthogonal_KRC, strict=True):
            param.mul_(1 - group["lr"] * group["weight_decay"])
            param.add_(shard_like(update, param), alpha=-group["lr"] * size)


def orthogonalize(matrices_KRC: Tensor, num_iterations: int = 5) -> Tensor:
    """The nearest orthogonal matrices, roughly: every singular value ends between about 0.7 and 1.2.

    A Newton-Schulz iteration of degree five whose coefficients trade exactness for few iterations.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    transposed = matrices_KRC.shape[1] > matrices_KRC.shape[2]
    x_KRC = matrices_KRC.mT if transposed else matrices_KRC
    x_KRC = x_KRC.to(torch.bfloat16 if x_KRC.is_cuda else torch.float32)
    x_KRC = x_KRC / x_KRC.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(num_iterations):
        gram_KRR = x_KRC @ x_KRC.mT
        gram_KRR = torch.baddbmm(gram_KRR, gram_KRR, gram_KRR, beta=b, alpha=c)
        x_KRC = torch.baddbmm(x_KRC, gram_KRR, x_KRC, beta=a)
    return (x_KRC.mT if transposed else x_KRC).to(matrices_KRC.dtype)
