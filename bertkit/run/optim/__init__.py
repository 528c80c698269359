"""The table of optimizers, and how a model's parameters are handed to one of them.

A row takes the parameters and the recipe's section `optim`, and returns optimizers whose groups have their highest
learning rates. Which parameters are matrices is read off their modules, never off their names. Nothing heavy is
imported before a row is asked for.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from data_pipelines.table import Table

if TYPE_CHECKING:
    import torch
    from torch import nn

    from bertkit.config.sections import OptimConfig

    Row = Callable[["Parameters", OptimConfig], list[torch.optim.Optimizer]]

OPTIMIZERS: "Table[Row]" = Table(
    "optimizer", {"adamw": "bertkit.run.optim.adamw:adamw", "muon": "bertkit.run.optim.muon:muon"}
)
MOMENTS = {"adamw": 2, "muon": 1}
"""The fewest float32 numbers that an optimizer keeps for a weight; 0 for one that is not listed."""


class Group(NamedTuple):
    """Parameters that learn equally fast and hold equally many maps."""

    lr_scale: float
    """Their share of the learning rate."""
    params: "list[nn.Parameter]"
    maps: tuple[int, int] = (1, 1)
    """How many maps lie above each other and side by side in each matrix."""


class Parameters(NamedTuple):
    """Each trained parameter once."""

    matrices: list[Group]
    """Of linear layers: what decays, and what Muon updates."""
    rest: list[Group]
    """Biases, norms, embeddings, and the projection to the vocabulary."""


def build_optimizers(
    model: "nn.Module", config: "OptimConfig", lr_scale: Callable[[str], float] = lambda name: 1.0
) -> "list[torch.optim.Optimizer]":
    """The optimizers that `optim.name` means. Set learning rates with `set_lr`.

    `lr_scale` gives a parameter, by its name, a share of the learning rate.
    """
    scales = {id(param): lr_scale(name) for name, param in model.named_parameters()}
    maps = _maps_of(model)
    matrices, rest = (_grouped(params, scales, maps) for params in split_parameters(model))
    optimizers = OPTIMIZERS[config.name](Parameters(matrices, rest), config)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["highest_lr"] = group["lr"]
    return optimizers


def split_parameters(model: "nn.Module") -> "tuple[list[nn.Parameter], list[nn.Parameter]]":
    """Each trained parameter once: the matrices of linear layers, and the rest. A layer that shares its weight with
    an embedding counts as the embedding."""
    from torch import nn

    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    linear = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)} - tables
    trained = [param for param in model.parameters() if param.requires_grad]
    return [p for p in trained if id(p) in linear], [p for p in trained if id(p) not in linear]


def set_lr(optimizers: "Iterable[torch.optim.Optimizer]", share: float) -> None:
    """Set every learning rate to this share of its highest value."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["highest_lr"] * share


def _maps_of(model: "nn.Module") -> dict[int, tuple[int, int]]:
    """What the modules of a model say of their matrices that hold several maps, by the matrix's id."""
    told: list[dict[nn.Linear, tuple[int, int]]] = [
        getattr(module, "joined_maps", dict)() for module in model.modules()
    ]
    return {id(linear.weight): maps for matrices in told for linear, maps in matrices.items()}


def _grouped(params: "list[nn.Parameter]", scales: dict[int, float], maps: dict[int, tuple[int, int]]) -> list[Group]:
    groups: dict[tuple[float, tuple[int, int]], list[nn.Parameter]] = {}
    for param in params:
        groups.setdefault((scales[id(param)], maps.get(id(param), (1, 1))), []).append(param)
    return [Group(scale, same, shape) for (scale, shape), same in groups.items()]
