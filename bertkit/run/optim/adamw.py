"""AdamW for every parameter; only the matrices decay."""

import torch

from bertkit.config.sections import OptimConfig
from bertkit.run.optim import Parameters


def adamw(parameters: Parameters, config: OptimConfig) -> list[torch.optim.Optimizer]:
    groups = [
        {"params": group.params, "weight_decay": decay, "lr": config.lr * group.lr_scale}
        for part, decay in ((parameters.matrices, config.weight_decay), (parameters.rest, 0.0))
        for group in part
    ]
    betas = (config.betas[0], config.betas[1])
    return [torch.optim.AdamW(groups, lr=config.lr, betas=betas, eps=config.eps, fused=True)]
