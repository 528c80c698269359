"""How many operations a second this machine does in matrix products, and how many a step needs."""

import time
from collections.abc import Callable

import torch
from accelerate import Accelerator
from torch import nn

from bertkit.model.config import EncoderConfig
from bertkit.model.flops import forward_flops, head_flops, layer_flops
from bertkit.model.heads import ModelWithHead
from bertkit.model.products.linear import product

_MEASUREMENTS = 5
"""Of the peak in a run. Each stops it for a fifth of a second, which is longer than a small step."""


def share_of_peak(
    flops: Callable[[int, int], float], accelerator: Accelerator
) -> Callable[[int, int, float], float | None]:
    """A function of tokens, targets and seconds: the share of the peak of this run's devices that they make. A run that
    is faster than its peak was measured beside other programs: the peak is measured again, a few times at most, and
    the share is None if that does not help."""
    peak, measurements = 0.0, 0

    def share(num_tokens: int, num_targets: int, seconds: float) -> float | None:
        nonlocal peak, measurements
        speed = flops(num_tokens, num_targets) / seconds / accelerator.num_processes
        if speed >= peak and measurements < _MEASUREMENTS:
            peak = max(peak, measure_peak(accelerator.device, accelerator.mixed_precision))
            measurements += 1
        return speed / peak if speed <= peak else None

    return share


def measure_peak(device: torch.device, precision: str) -> float:
    """Floating-point operations a second in a large matrix product: the best of a fifth of a second."""
    size = 4096 if device.type == "cuda" else 768
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + 0.2
    while time.perf_counter() < end:
        start = time.perf_counter()
        product(left, right)[0, 0].item()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def count_flops(model: nn.Module) -> Callable[[int, int], float]:
    """A function of tokens and targets: the operations of a step of this model. What attention adds for scores and
    sums is left out: it depends on the lengths, and is small for rows of a few hundred tokens. In a model that is more
    than an encoder with a head, every linear layer counts for every token."""
    if not isinstance(model, ModelWithHead):
        layers = layer_flops(model)
        return lambda num_tokens, num_targets: 3.0 * layers * num_tokens
    head = head_flops(model)
    learns = any(param.requires_grad for param in model.encoder.parameters())
    return lambda num_tokens, num_targets: step_flops(
        model.config, head, num_tokens, num_targets, encoder_passes=3 if learns else 1
    )


def step_flops(
    config: EncoderConfig,
    head: float,
    num_tokens: int,
    num_targets: int,
    seen: float = 0.0,
    encoder_passes: int = 3,
) -> float:
    """The operations of the matrix products that a step needs, forward and backward: of the encoder for every token,
    except what the last block computes for targets only, and of the head, which takes `head` operations forward, for
    targets. A token attends to `seen` keys in the mean, and in a window to no more than the window holds."""
    width = config.hidden_size
    scores = [4 * width * (seen if window is None else min(seen, 2 * window + 1)) for window in config.windows()]
    linear = forward_flops(config, 0) / config.num_hidden_layers
    keys_and_values = 2 * 2 * width * width
    per_token = sum(linear + score for score in scores[:-1]) + keys_and_values
    per_target = linear - keys_and_values + scores[-1]
    return encoder_passes * (num_tokens * per_token + num_targets * per_target) + 3 * num_targets * head
