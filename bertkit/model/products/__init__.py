"""Matrix products on a CPU: by which library, and what half precision means there.

Torch gives products in float32 to MKL, which uses half of what AMD's processors with AVX-512 can do. oneDNN, which is
a part of torch too, uses all of it. It is called for each product of a linear layer, not switched on for all: the many
small products of attention take longer with it.

Processors with AVX512-BF16 or AMX multiply in bf16 at least twice as fast as in float32, and do nothing else in it.
Autocast rounds everything between two products as well, which saves no time there, and the gradient of torch's fused
attention takes six times as long in bf16. So values are rounded where a product begins, and its result is float32,
unless it goes to the next product through a softmax or an activation alone, which compute in float32 inside.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def multiplies_in_half(values: Tensor) -> bool:
    """Whether autocast asks for bf16 on a CPU. A compiler sees autocast itself, whose casts it can fuse."""
    if values.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


def in_half(compute: Callable[..., Any], device: Any) -> Callable[..., Any]:
    """The same function, with its large matrix products in bf16."""
    return torch.autocast(torch.device(device).type, torch.bfloat16)(compute)
