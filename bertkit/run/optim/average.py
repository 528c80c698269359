"""The mean of the weights over the last steps of a run. It is next to the moments, so checkpoints hold it."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

_AVERAGE = "average"


@torch.no_grad()
def average_weights(optimizers: Sequence[torch.optim.Optimizer], step: int, total_steps: int, share: float) -> None:
    """Take the weights after `step` steps into their mean, in the last `share` of all steps; the first of them begins
    it anew. What no optimizer has moved yet is its own mean."""
    count = step - (total_steps - round(share * total_steps))
    if count < 1:
        return
    for optimizer in optimizers:
        for param, state in optimizer.state.items():
            if not state:
                continue
            if count == 1 or _AVERAGE not in state:
                state[_AVERAGE] = param.detach().clone()
            else:
                state[_AVERAGE].lerp_(param.detach(), 1 / count)


@contextlib.contextmanager
def averaged(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """The model with the mean of its weights, where there is one; afterwards it is as before, bit for bit."""
    means: list[tuple[Tensor, Tensor]] = [
        (param, state[_AVERAGE])
        for optimizer in optimizers
        for param, state in optimizer.state.items()
        if _AVERAGE in state
    ]
    with torch.no_grad():
        own = [param.detach().clone() for param, _ in means]
        for param, mean in means:
            param.copy_(mean)
    try:
        yield
    finally:
        with torch.no_grad():
            for (param, _), weights in zip(means, own, strict=True):
                param.copy_(weights)
