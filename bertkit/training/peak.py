"""The machine enters, its speed leaves: how many operations a matrix product does in a second, and a step needs."""

import time
from collections.abc import Callable

import torch
from torch import nn

from bertkit.training.optim import split_parameters


def measure_peak(device: torch.device, precision: str) -> float:
    """Floating-point operations a second in a large matrix product: the best of a few, in a fifth of a second."""
    size = 4096 if device.type == "cuda" else 768
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + 0.2
    while time.perf_counter() < end:
        start = time.perf_counter()
        (left @ right)[0, 0].item()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def count_flops(model: nn.Module, vocab_size: int, hidden_size: int) -> Callable[[int, int], float]:
    """Operations of the linear layers, forward and backward, for so many tokens and targets. What attention adds
    for scores and sums is left out: it is small for rows of a few hundred tokens."""
    matrices, _ = split_parameters(model)
    encoder = sum(matrix.numel() for matrix in matrices)
    return lambda num_tokens, num_targets: 6.0 * (encoder * num_tokens + vocab_size * hidden_size * num_targets)
