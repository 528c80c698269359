"""A model enters, its optimizers leave. What decays, and what Muon moves, is read off a parameter's module."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.config.sections import OptimConfig
from bertkit.run.state import gather_full, shard_like

# K matrices of one shape, R rows, C columns


def build_optimizers(
    model: nn.Module, config: OptimConfig, speed: Callable[[str], float] = lambda name: 1.0
) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the hidden matrices and AdamW for the rest. Set rates with `set_lr`.

    `speed` gives a parameter, by its name, a share of the learning rate.
    """
    speeds = {id(param): speed(name) for name, param in model.named_parameters()}
    matrices, rest = split_parameters(model)
    optimizers: list[torch.optim.Optimizer] = []
    if config.name == "muon" and matrices:
        groups = [{"params": same, "lr": config.muon_lr * share} for share, same in _by_speed(matrices, speeds)]
        optimizers.append(Muon(groups, config.muon_lr, config.momentum, config.weight_decay))
        matrices = []
    adamw = [
        {"params": same, "weight_decay": decay, "lr": config.lr * share}
        for params, decay in ((matrices, config.weight_decay), (rest, 0.0))
        for share, same in _by_speed(params, speeds)
    ]
    betas = (config.betas[0], config.betas[1])
    optimizers.append(torch.optim.AdamW(adamw, lr=config.lr, betas=betas, eps=config.eps, fused=True))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["highest_lr"] = group["lr"]
    return optimizers


def _by_speed(params: list[nn.Parameter], speeds: dict[int, float]) -> list[tuple[float, list[nn.Parameter]]]:
    groups: dict[float, list[nn.Parameter]] = {}
    for param in params:
        groups.setdefault(speeds[id(param)], []).append(param)
    return list(groups.items())


def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Each trained parameter once: the matrices of linear layers, and the rest (biases, norms, embeddings, and the
    projection to the vocabulary). A layer that shares its weight with an embedding counts as the embedding."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    linear = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)} - tables
    trained = [param for param in model.parameters() if param.requires_grad]
    return [p for p in trained if id(p) in linear], [p for p in trained if id(p) not in linear]


def set_lr(optimizers: Iterable[torch.optim.Optimizer], share: float) -> None:
    """Set every rate to this share of its highest value."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["highest_lr"] * share


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
