"""The table of GPUs, and what is taken for granted about all of them."""

from typing import NamedTuple


class Gpu(NamedTuple):
    bf16_tflops: float
    """Peak of dense matrix products in bf16, in TFLOP/s."""
    fp32_tflops: float
    """The same in float32, without TF32."""
    bandwidth: float
    """Of its memory, in GB/s."""
    memory: float
    """GiB that a process can use."""
    link: float
    """To another GPU of the machine, in GB/s for each direction."""
    price: float
    """Dollars an hour, roughly, where it is rented."""


GPUS = {
    "A100-40": Gpu(312, 19.5, 1555, 39.4, 300, 1.8),
    "A100-80": Gpu(312, 19.5, 2039, 79.2, 300, 2.2),
    "H100": Gpu(989, 67, 3350, 79.6, 450, 3.5),
    "H200": Gpu(989, 67, 4800, 140.4, 450, 4.0),
    "B200": Gpu(2250, 80, 8000, 179.0, 900, 6.0),
    "L4": Gpu(121, 30, 300, 22.0, 16, 0.7),
    "A10G": Gpu(70, 31, 600, 22.0, 16, 1.0),
    "RTX4090": Gpu(165, 82, 1008, 23.5, 16, 0.5),
}

REACHED = {"product": 0.75, "attention": 0.5, "attention_backward": 0.4}
"""Share of its peak that a GPU reaches in each kind of work."""
REACHED_BANDWIDTH = 0.85
REACHED_LINK = 0.7
LAUNCH_SECONDS, HOST_SECONDS = 3e-6, 9e-6
"""A kernel costs the GPU so much before it starts, and the host so much to ask for."""
HIDDEN_SHARE = 0.6
"""Of a micro-batch's time, during which messages can travel unnoticed."""
LIKELY_SHARE = 0.7
"""Of the speed at best that a run is likely to have; 0.5 to 0.85 is common."""
RESERVED_GIB, FRAGMENTED = 1.5, 1.08
"""What CUDA itself takes, and how much more than its tensors a process holds."""


def assumptions(gpu: Gpu, compiled: bool) -> dict[str, float | str]:
    """What a plan rests on, to be printed with it."""
    return {
        "bf16_tflops": gpu.bf16_tflops,
        "fp32_tflops": gpu.fp32_tflops,
        "bandwidth_gb_per_second": gpu.bandwidth,
        "memory_gib": gpu.memory,
        "link_gb_per_second": gpu.link,
        "price_per_hour": gpu.price,
        **{f"share_of_peak_{kind}": share for kind, share in REACHED.items()},
        "share_of_bandwidth": REACHED_BANDWIDTH,
        "share_of_link": REACHED_LINK,
        "microseconds_a_kernel_on_the_gpu": LAUNCH_SECONDS * 1e6,
        "microseconds_a_kernel_on_the_host": HOST_SECONDS * 1e6,
        "share_of_a_micro_batch_that_hides_messages": HIDDEN_SHARE,
        "likely_share_of_the_speed": LIKELY_SHARE,
        "gib_reserved": RESERVED_GIB,
        "memory_held_per_byte_of_tensors": FRAGMENTED,
        "train.compile": "chains of elementwise operators, dropout and norms are one kernel, memory is as without it"
        if compiled
        else "not asked for, every operator is a kernel",
        "rows": "full, of two sequences",
        "tokens_per_second, hours, gpu_hours, cost": "at best; loading, evaluation and checkpoints not counted",
    }
