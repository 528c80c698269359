"""All that a run must remember: the counters of its loop, and weights and moments as whole tensors on the CPU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from bertkit.tensor_file import in_order

Tensors = dict[str, dict[str, Tensor]]


@dataclass
class LoopState:
    """What a loop counts; a checkpoint holds it beside weights and moments."""

    step: int = 0
    """Optimizer steps done."""
    seconds: float = 0.0
    """Training time; evaluating and saving are not counted."""
    tokens: int = 0
    bad_steps: int = 0
    """Steps in a row, up to now, that were not finite."""
    best_step: int | None = None
    best_score: float | None = None
    """The highest so far; of pretraining minus the held-out loss."""
    stale: int = 0
    """Evaluations since the best one."""

    def note_score(self, score: float) -> bool:
        """Whether the weights of this step are the best so far."""
        better = self.best_score is None or score > self.best_score
        if better:
            self.best_step, self.best_score = self.step, score
        self.stale = 0 if better else self.stale + 1
        return better


def named_state(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Tensors:
    """Weights by name, and everything the optimizers remember as `PARAMETER/STATE`, as they lie here, in the order of
    their files."""
    names: dict[torch.Tensor, str] = {param: name for name, param in _named_parameters(model).items()}
    memory = {
        f"{names[param]}/{key}": value
        for optimizer in optimizers
        for param, state in optimizer.state.items()
        for key, value in state.items()
    }
    return {"model": in_order({name: param.detach() for param, name in names.items()}), "optimizer": in_order(memory)}


def gather_in_turn(tensors: Mapping[str, Mapping[str, Tensor]]) -> Iterator[Tensor]:
    """All of each tensor, on the host of the first rank; nothing on others.

    Every rank must iterate to the end, whatever happens to it: all take part, tensor by tensor. None, the first
    included, ever holds more than its shards and one tensor, unless it keeps what it is given.
    """
    first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
    for part in tensors.values():
        for tensor in part.values():
            if first or isinstance(tensor, DTensor):
                full = gather_full(tensor).detach()
                if first:
                    yield full.cpu()
                del full


@torch.no_grad()
def snapshot(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Callable[[], None]:
    """Copy what this rank has of weights and moments; calling the result puts it back."""
    weights = [(param, param.detach().clone()) for param in model.parameters()]
    memory = [(optimizer, {p: _cloned(state) for p, state in optimizer.state.items()}) for optimizer in optimizers]

    @torch.no_grad()
    def put_back() -> None:
        for param, weight in weights:
            param.copy_(weight)
        for optimizer, states in memory:
            optimizer.state.clear()
            optimizer.state.update(states)

    return put_back


def _cloned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


@torch.no_grad()
def restore_state(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], tensors: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Put back what `named_state` gave; names and shapes must be the model's, all of them. Each tensor is asked for
    once, and only this rank's shard of it outlives the next."""
    params = _named_parameters(model)
    weights = tensors["model"]
    odd = sorted(params.keys() ^ weights.keys())
    if odd:
        raise ValueError(f"the checkpoint is of another model: {odd[0]!r} is in only one of them")
    for name, param in params.items():
        _copy_shard(name, weights[name], param)
    owners = {p: optimizer for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    for optimizer in optimizers:
        optimizer.state.clear()
    for name in tensors["optimizer"]:
        param_name, _, key = name.rpartition("/")
        if param_name not in params:
            raise ValueError(f"the checkpoint has optimizer state for {param_name!r}, which the model lacks")
        param = params[param_name]
        owners[param].state[param][key] = _own_shard(tensors["optimizer"][name], param)


@torch.no_grad()
def fill_shards(model: nn.Module, values: dict[str, Callable[[], Tensor]], device: torch.device) -> None:
    """Give the shards of an outline memory, and their part of the values that belong to these names. Tensors are made
    one at a time and dropped, the largest first, in case it is there already."""
    model._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor)
    params = dict(model.named_parameters())
    for name in sorted(values, key=lambda name: -params[name].numel()):
        _copy_shard(name, values.pop(name)(), params[name])


def _copy_shard(name: str, weight: Tensor, param: Tensor) -> None:
    if param.shape != weight.shape:
        raise ValueError(
            f"the checkpoint is of another model: {name!r} has shape {tuple(weight.shape)} there "
            f"and {tuple(param.shape)} here"
        )
    param.copy_(shard_like(weight.to(param.device), param))


def _own_shard(moment: Tensor, param: Tensor) -> Tensor:
    # AdamW's step count is one number, whatever the sharding.
    sharded = isinstance(param, DTensor) and moment.ndim > 0
    moment = moment.to(param.device, copy=not sharded)
    return shard_like(moment, param) if sharded else moment


def gather_full(tensor: Tensor) -> Tensor:
    """All of a tensor that FSDP has sharded, on every rank; any other as it is. All ranks take part."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, param: Tensor) -> Tensor:
    """A full tensor as the shards that FSDP made of the parameter. Every rank has it, so no rank sends anything."""
    if not isinstance(param, DTensor):
        return tensor
    return distribute_tensor(tensor, param.device_mesh, param.placements, src_data_rank=None)


def _named_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """By the names of the bare model: DDP puts `module.` before them."""
    bare = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    return dict(bare.named_parameters())
