"""What makes a process that computes on a CPU fast."""

import ctypes
import functools

import torch

# Numbers of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def make_ready() -> None:
    """Call it before torch starts threads: they inherit what it sets."""
    flush_denormals()
    keep_freed_memory()


def flush_denormals() -> None:
    """Let numbers that are too small to be normal count as zero: a softmax is full of them, and they slow matrix
    products several times."""
    torch.set_flush_denormal(True)


def keep_freed_memory() -> bool:
    """Let glibc keep large arrays that are freed for the next of their size; says whether it could.

    Otherwise it returns them to the system, which fills them with zeros, page by page, when they are asked for again:
    gradients and activations, at every step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    never = mallopt(_TRIM_THRESHOLD, -1)
    # Older versions take at most 32 MB.
    return bool(never and (mallopt(_MMAP_THRESHOLD, 2**30) or mallopt(_MMAP_THRESHOLD, 2**25)))


def multiplies_in_bf16() -> bool:
    """Whether the processor has instructions for products in bf16. Others compute them in float32, more slowly than
    float32 itself."""
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


@functools.cache
def onednn_is_faster(transposed: bool = False) -> bool:
    """Whether oneDNN multiplies in float32 faster than MKL, torch's choice, which takes no instructions beyond AVX2 on
    AMD's processors. A `transposed` first factor is copied before, which pays off only where AVX-512 is twice as
    fast as AVX2: from Zen 5 on, whose sign is VP2INTERSECT."""
    found = torch.cpu.get_capabilities()
    with_avx512 = "AMD" in str(found.get("cpu_name")) and bool(found.get("avx512_f"))
    pays_off = with_avx512 and (not transposed or bool(found.get("avx512_vp2intersect")))
    return pays_off and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
