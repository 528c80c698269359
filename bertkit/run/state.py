"""A model and its optimizers enter, named whole CPU tensors leave, and back; sharded or not."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bertkit.run.sharding import split_like, whole

Tensors = dict[str, dict[str, Tensor]]


def gather_state(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Tensors:
    """Weights by name, and everything the optimizers remember as `PARAMETER/STATE`. All ranks take part."""
    names: dict[torch.Tensor, str] = {param: name for name, param in _named_parameters(model).items()}
    return {
        "model": {name: whole(param).detach().cpu() for param, name in names.items()},
        "optimizer": {
            f"{names[param]}/{key}": whole(value).detach().cpu()
            for optimizer in optimizers
            for param, state in optimizer.state.items()
            for key, value in state.items()
        },
    }


@torch.no_grad()
def restore_state(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], tensors: Tensors) -> None:
    """Put back what `gather_state` took; names and shapes must be the model's, all of them."""
    params = _named_parameters(model)
    weights = tensors["model"]
    odd = sorted(params.keys() ^ weights.keys())
    if odd:
        raise ValueError(f"the checkpoint is of another model: {odd[0]!r} is in one of the two only")
    for name, param in params.items():
        if param.shape != weights[name].shape:
            raise ValueError(
                f"the checkpoint is of another model: {name!r} has shape {tuple(weights[name].shape)} there "
                f"and {tuple(param.shape)} here"
            )
        param.copy_(split_like(weights[name].to(param.device), param))
    owners = {p: optimizer for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    for optimizer in optimizers:
        optimizer.state.clear()
    for name, tensor in tensors["optimizer"].items():
        param_name, _, key = name.rpartition("/")
        if param_name not in params:
            raise ValueError(f"the checkpoint has optimizer state for {param_name!r}, which the model lacks")
        param = params[param_name]
        tensor = tensor.to(param.device, copy=True)
        # AdamW's step count is one number, whatever the sharding.
        owners[param].state[param][key] = split_like(tensor, param) if tensor.ndim else tensor


def _named_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """By the names of the bare model: DDP puts `module.` before them."""
    bare = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    return dict(bare.named_parameters())
