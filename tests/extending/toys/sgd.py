"""An optimizer: plain gradient descent with momentum."""

import torch

from bertkit.config.sections import OptimConfig
from bertkit.run.optim import OPTIMIZERS, Parameters


def sgd(parameters: Parameters, config: OptimConfig) -> list[torch.optim.Optimizer]:
    groups = [
        {"params": group.params, "lr": config.lr * group.lr_scale} for group in parameters.matrices + parameters.rest
    ]
    return [torch.optim.SGD(groups, momentum=config.momentum)]


OPTIMIZERS.add("sgd", sgd)
