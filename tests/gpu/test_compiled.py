"""train.compile on fake CUDA, with the true dynamo and the true tracer of autograd.

Only the code that inductor would write for a GPU is not made: the traced operators run in its place.

One thing cannot be had without CUDA: recomputed layers in a graph of the whole model ask for its generators.
"""

from functools import partial

import pytest
import torch
from functorch.compile import nop
from gpu_step import DDP, FSDP, ONE, check, needs_fake_cuda, outline, recipe_of, shipped_step, step_of
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch.utils._triton import has_triton

from bertkit.plan.ranks import fake_parameters, fake_ranks
from bertkit.plan.rehearsal import Shape, fake_batch
from bertkit.run import ranks
from bertkit.run.optim import build_optimizers

pytestmark = needs_fake_cuda
traced = partial(torch.compile, backend=aot_autograd(fw_compiler=nop, bw_compiler=nop))


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    has_triton()  # torch keeps the answer; asked on fake CUDA, a build with CUDA would look for a GPU
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch, "compile", traced)
    monkeypatch.setattr(ranks, "_can_compile", lambda accelerator: True)
    with torch._dynamo.config.patch(optimize_ddp=True):
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("name", "setting", "num_graphs"),
    [
        ("bert-base", ONE, 1),
        ("bert-base", FSDP, 2),
        pytest.param("bert-base", DDP, 2, marks=pytest.mark.plans),
        pytest.param("modernbert-base", ONE, 1, marks=pytest.mark.plans),
        pytest.param("modernbert-base", FSDP, 3, marks=pytest.mark.plans),
    ],
    ids=["bert-one", "bert-fsdp", "bert-ddp", "modernbert-one", "modernbert-fsdp"],
)
def test_a_compiled_step_keeps_the_laws_without_a_break(name, setting, num_graphs):
    """On several GPUs a graph is of a layer: one for each kind, and one for the last, asked for targets only."""
    recipe = recipe_of(name)
    model = outline(recipe)
    compiled = step_of(recipe, setting._replace(compiled=True), model)
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == num_graphs
    check(compiled, setting, len(model.encoder.layers))
    eager = shipped_step(name, setting)
    work = [sum(kernel.num_operations for kernel in step.micro_batch) for step in (compiled, eager)]
    assert work[0] == work[1], "what the plan counts in eager mode is what a compiled step computes"


def test_batches_of_other_shapes_need_no_other_graph():
    recipe = recipe_of("bert-base")
    model = outline(recipe)
    with fake_ranks(1, None, "bf16") as accelerator:
        fake_parameters(model, accelerator.device)
        trainable = ranks.wrap(accelerator, model, partial(build_optimizers, config=recipe.optim), compiled=True)
        for lengths, num_targets in (((64, 30), 14), ((12, 9, 40), 11), ((128,), 30)):
            batch = fake_batch(Shape(lengths, num_targets)).to(accelerator.device)
            trainable.model(batch).backward()
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] <= 2
