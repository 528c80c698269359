"""Kernels and a GPU enter, seconds leave: each kernel is as slow as its operations or its memory traffic make it."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from bertkit.plan.gpus import HOST_SECONDS, LAUNCH_SECONDS, REACHED, REACHED_BANDWIDTH, REACHED_LINK, Gpu
from bertkit.plan.watch import Kernel, Message


def seconds_of(kernels: Sequence[Kernel], gpu: Gpu) -> float:
    """Of the GPU, or of the host where that is slower to ask for them."""
    return max(sum(seconds_by_kind(kernels, gpu).values()), host_seconds(kernels))


def host_seconds(kernels: Sequence[Kernel]) -> float:
    return len(kernels) * HOST_SECONDS


def seconds_by_kind(kernels: Sequence[Kernel], gpu: Gpu) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        seconds[kernel.kind] += kernel_seconds(kernel, gpu)
    return dict(seconds)


_PASSES = {"allreduce_": 2, "all_reduce": 2, "wait_tensor": 0}
"""How often the bytes of a collective travel, where not once."""


def bytes_sent(messages: Sequence[Message], num_gpus: int) -> int:
    """By one rank, to others."""
    passes = sum(message.num_bytes * _PASSES.get(message.name, 1) for message in messages if message.on_device)
    return passes * (num_gpus - 1) // num_gpus


def seconds_sent(num_bytes: int, gpu: Gpu) -> float:
    return num_bytes / (gpu.link * 1e9 * REACHED_LINK)


def kernel_seconds(kernel: Kernel, gpu: Gpu) -> float:
    seconds = kernel.num_bytes / (gpu.bandwidth * 1e9 * REACHED_BANDWIDTH)
    if kernel.num_operations:
        precise = any(dtype not in (torch.bfloat16, torch.float16) for dtype in kernel.dtypes)
        peak = (gpu.fp32_tflops if precise else gpu.bf16_tflops) * 1e12
        seconds = max(seconds, kernel.num_operations / (peak * REACHED[kernel.kind]))
    return seconds + LAUNCH_SECONDS
