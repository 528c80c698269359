"""Fake CUDA is gone when it is over, and answers like a GPU while it is there."""

import os

import torch
import torch.nn.functional as F
from gpu_step import FSDP, ONE, needs_fake_cuda

from bertkit.plan.fake_cuda import fake_cuda
from bertkit.plan.ranks import fake_ranks

pytestmark = needs_fake_cuda


def test_nothing_of_it_stays():
    before = dict(os.environ)
    for setting in (ONE, FSDP):
        with fake_ranks(setting.num_gpus, setting.launch_file, "bf16") as accelerator:
            assert accelerator.num_processes == setting.num_gpus
            assert torch.cuda.is_available()
    assert not torch.cuda.is_available()
    assert not torch.accelerator.is_available()
    assert not torch.distributed.is_initialized()
    assert dict(os.environ) == before
    weight = torch.ones(3, requires_grad=True)
    (weight * 2).sum().backward()
    assert weight.grad.tolist() == [2.0] * 3


def test_autocast_is_that_of_cuda():
    """Layer norm returns float32 there, and what was computed on CPUs only never showed it."""
    with fake_cuda() as mode, mode, torch.autocast("cuda", dtype=torch.bfloat16):
        values = torch.ones(2, 8, device="cuda", dtype=torch.bfloat16)
        assert F.layer_norm(values, (8,)).dtype == torch.float32
        assert F.linear(values.float(), torch.ones(8, 8, device="cuda")).dtype == torch.bfloat16
