"""What makes a CPU many times slower without a word: numbers too small to be normal, and half precision."""

import platform

import pytest
import torch
from runs import run_code
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bertkit.config.sections import OptimConfig
from bertkit.cpu import onednn_is_faster
from bertkit.run.optim import build_optimizers

ENTRIES = {
    "cpu": "from bertkit.cpu import make_ready as start",
    "pretrain and finetune": "from bertkit.run.start import start_run; start = start_run(None, None).__enter__",
    "fill": "from bertkit.cli import main; start = lambda: main(['fill', '--model', 'no-model', 'x'])",
    "tag": "from bertkit.cli import main; start = lambda: main(['tag', '--model', 'no-model'])",
    "evaluate": "from bertkit.evaluate.folder import open_torch; start = lambda: open_torch('no such folder')",
    "bench": (
        "import bertkit.bench.step as step; step.WORKLOADS, step.matrix_peak = [], lambda: 1.0; "
        "start = lambda: list(step.bench_step(None, quick=True))"
    ),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_denormal_numbers_are_flushed_in_every_thread_before_anything_is_computed(entry, tmp_path):
    (tmp_path / "no-model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "no-model" / name).write_text("{}")
    code = f"""
import contextlib, torch
torch.set_num_threads(2)
{ENTRIES[entry]}
with contextlib.suppress(Exception):
    start()
small = torch.full((2**20,), 1e-30)
print(int((small * 1e-10).count_nonzero()))
"""
    assert run_code(code, tmp_path)[0].splitlines()[-1] == "0"


@pytest.mark.parametrize("entry", ["pretrain and finetune", "evaluate", "bench"])
def test_freed_memory_is_used_again_without_asking_the_system(entry, tmp_path):
    """A fault is a page that the system hands out and fills with zeros first."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the C library is not glibc, whose memory this keeps")
    code = f"""
import contextlib, resource, torch
{ENTRIES[entry]}
with contextlib.suppress(Exception):
    start()
def fill():
    for megabytes in (40, 80, 20):
        torch.ones(megabytes * 2**18)
for _ in range(4):  # by then small things that lie between large ones have found their places
    fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    assert int(run_code(code, tmp_path)[0].splitlines()[-1]) < 100


@pytest.mark.parametrize(
    ("name", "instructions", "faster"),
    [
        ("AMD EPYC", ["avx512_f", "avx512_vp2intersect"], [True, True]),
        ("AMD EPYC", ["avx512_f"], [True, False]),
        ("AMD EPYC", [], [False, False]),
        ("Intel(R) Xeon(R)", ["avx512_f", "avx512_vp2intersect"], [False, False]),
    ],
)
def test_onednn_multiplies_where_mkl_takes_avx2_alone(name, instructions, faster, monkeypatch):
    libraries = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name} | dict.fromkeys(instructions, True))
    found = [onednn_is_faster.__wrapped__(transposed) for transposed in (False, True)]
    assert found == [each and libraries for each in faster]
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert not onednn_is_faster.__wrapped__()


class SeenDtypes(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.dtypes = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, result)) if isinstance(leaf, torch.Tensor)]
        self.dtypes |= {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
        return result


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_an_optimizer_remembers_and_multiplies_in_float32(name):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    optimizers = build_optimizers(model, OptimConfig(name=name))
    model(torch.randn(3, 4)).square().sum().backward()
    with SeenDtypes() as seen:
        for optimizer in optimizers:
            optimizer.step()
    assert seen.dtypes == {torch.float32}
    state = tree_leaves([list(optimizer.state.values()) for optimizer in optimizers])
    assert {tensor.dtype for tensor in state if isinstance(tensor, torch.Tensor)} == {torch.float32}
