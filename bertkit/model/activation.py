"""Nonlinearities by name."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor


def activation(name: str) -> Callable[[Tensor], Tensor]:
    return _FUNCTIONS[name]


def name_of(function: Callable[[Tensor], Tensor]) -> str:
    """The first name of such a function."""
    return next(name for name, known in _FUNCTIONS.items() if known is function)


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}
