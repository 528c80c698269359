"""Fake CUDA is gone when it is over, and answers like a GPU while it is there."""

import os
import subprocess
import sys
from pathlib import Path

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


def test_another_torch_is_told_loudly():
    """At the end of the tests, where a skipped one would be a letter among thousands."""
    code = """
import pytest
from bertkit.plan import fake_cuda
fake_cuda.TORCH = (0, 0)
pytest.main(["-p", "no:cacheprovider", "tests/gpu/test_fake_cuda.py", "-k", "autocast"])
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert "NO GPU CODE IS TESTED HERE: fake CUDA is made for torch 0.0" in done.stdout
