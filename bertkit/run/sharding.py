"""Tensors that FSDP has spread over ranks: made whole, and spread again."""

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor on every rank; one that was never spread as it is. All ranks take part."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def split_like(tensor: Tensor, param: Tensor) -> Tensor:
    """A whole tensor as the shards that FSDP made of the parameter."""
    if not isinstance(param, DTensor):
        return tensor
    return distribute_tensor(tensor, param.device_mesh, param.placements)
