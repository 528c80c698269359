"""Steps of shipped recipes on fake CUDA, and what must hold of each."""

import functools
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from bertkit.cli.plan import read_job
from bertkit.config.recipe import recipe_values, shipped_recipes
from bertkit.model import MaskedLM
from bertkit.model.initialization import outline_encoder
from bertkit.plan.fake_cuda import why_not
from bertkit.plan.plan import Job
from bertkit.plan.rehearsal import NUM_MICRO_BATCHES, Rehearsal, Setting, even_shape, rehearse

needs_fake_cuda = pytest.mark.skipif(why_not() is not None, reason=f"NO GPU CODE IS TESTED HERE: {why_not()}")

LAUNCH_FILES = shipped_recipes()["bert-base"].parent / "accelerate"
ONE = Setting()
DDP, DDP_64, FSDP, FSDP_64 = (
    Setting(num_gpus, LAUNCH_FILES / f"{name}.yaml") for name in ("ddp", "fsdp") for num_gpus in (8, 64)
)
TWO_NODES, EIGHT_NODES = (Setting(num_gpus, LAUNCH_FILES / "two-nodes.yaml", rank=9) for num_gpus in (16, 64))
NEW_MODELS = [
    name for name in shipped_recipes() if recipe_values(name, [], "pretrain")["model"]["architecture"] != "imported"
]


def recipe_of(name: str) -> Job:
    return read_job(name)


def outline(recipe: Job, **changes) -> MaskedLM:
    """Few layers, at their real width: every kernel of a step is there, and the test is quick."""
    layers = 3 if any(field.name == "local_attention" for field in fields(recipe.encoder)) else 2
    return MaskedLM(outline_encoder(replace(recipe.encoder, **{"num_hidden_layers": layers, **changes})))


def step_of(recipe: Job, setting: Setting, model: nn.Module | None = None) -> Rehearsal:
    shape = even_shape(recipe.seq_len, recipe.train.micro_batch, recipe.mask_rate)
    return rehearse(outline(recipe) if model is None else model, recipe.optim, shape, setting)


@functools.cache
def shipped_step(name: str, setting: Setting) -> Rehearsal:
    """The step of a recipe as it is, for all tests that look at it."""
    return step_of(recipe_of(name), setting)


def check(step: Rehearsal, setting: Setting, num_layers: int | None = None) -> None:
    """The laws of a step on any number of GPUs."""
    watch = step.watch
    assert not watch.mixed_products
    products = {kernel.dtypes[0] for kernel in watch.kernels if kernel.kind == "product"}
    assert products == {torch.float32 if setting.precision == "fp32" else torch.bfloat16}
    assert sum(watch.waits.values()) == 1, watch.waits
    assert not watch.copies
    assert not watch.unordered, "run.deterministic would raise"
    assert step.result.applied
    check_messages(step, setting, num_layers)


def check_messages(step: Rehearsal, setting: Setting, num_layers: int | None) -> None:
    """Gradients travel once, in float32; under FSDP each layer's weights travel by themselves, in half precision."""
    sent, counts = Counter(), Counter()
    for message in step.watch.messages:
        sent[message.name] += message.num_bytes
        counts[message.name, message.dtype.itemsize] += 1
    told = {("allreduce_", 8): 2}  # counts over the host; loss, norm and stop
    if setting.num_gpus == 1:
        assert not counts
    elif "fsdp" in Path(setting.launch_file).name:
        assert num_layers is not None
        assert counts["_reduce_scatter_base_", 4] == num_layers + 1
        assert sent["_reduce_scatter_base_"] >= 4 * step.num_parameters
        per_pass = counts["_allgather_base_", 2] / NUM_MICRO_BATCHES
        assert per_pass == 2 * num_layers + 1, "each layer again for the backward pass, the rest once"
        assert counts["allreduce_", 8] == told["allreduce_", 8]
        assert counts["scatter_", 4] == counts["scatter", 4] == 0, "no rank needs what it has itself"
    else:
        assert sent["allreduce_"] == pytest.approx(4 * step.num_parameters, rel=1e-6)
        assert counts.pop(("allreduce_", 4)) >= 1
        counts.pop(("allgather_", 2), None)  # matrices that Muon made orthogonal, each on one rank
        assert counts == told
