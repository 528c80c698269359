"""A step of every shipped recipe as a GPU would take it, of those made for GPUs also from every shipped launch file.

`continued`, whose model is the user's, is in test_fake_objectives.py, the recipes of fine-tuning are in
test_fake_tasks.py.
"""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from gpu_step import (
    DDP,
    DDP_64,
    EIGHT_NODES,
    FSDP,
    FSDP_64,
    LAUNCH_FILES,
    NEW_MODELS,
    ONE,
    TWO_NODES,
    check,
    needs_fake_cuda,
    outline,
    recipe_of,
    shipped_step,
    step_of,
)

from bertkit.model import attention, heads, rotation
from bertkit.run import ranks

pytestmark = needs_fake_cuda
SHARED = {
    "ddp": DDP,
    "ddp-64": DDP_64,
    "fsdp": FSDP,
    "fsdp-64": FSDP_64,
    "two-nodes": TWO_NODES,
    "eight-nodes": EIGHT_NODES,
}
SETTINGS = {"one": ONE, **SHARED}
FOR_GPUS = [name for name in NEW_MODELS if recipe_of(name).train.precision == "bf16"]
CASES = [
    *((name, "one") for name in NEW_MODELS),
    *((name, setting) for name in FOR_GPUS for setting in SHARED),
    ("bert-mini", "fsdp"),  # Muon on the layers of BERT
]


def test_no_launch_file_is_left_out():
    assert {setting.launch_file for setting in SHARED.values()} == set(LAUNCH_FILES.glob("*.yaml"))
    assert FOR_GPUS == ["bert-base", "bert-large", "modernbert-base", "roberta-style"]


@pytest.mark.parametrize(("name", "setting"), CASES)
def test_a_step_waits_once_and_multiplies_in_half_precision(name, setting):
    assert recipe_of(name).train.precision != "fp32"
    check(shipped_step(name, SETTINGS[setting]), SETTINGS[setting], len(outline(recipe_of(name)).encoder.layers))


@pytest.mark.parametrize("setting", ["one", "fsdp"])
@pytest.mark.parametrize("name", ["bert-base", "modernbert-base"])
def test_recomputing_layers_saves_memory_and_nothing_else_changes(name, setting):
    recipe = recipe_of(name)
    model = outline(recipe)
    kept = shipped_step(name, SETTINGS[setting])
    model.encoder.gradient_checkpointing = True
    recomputed = step_of(recipe, SETTINGS[setting], model)
    check(recomputed, SETTINGS[setting], len(model.encoder.layers))
    assert recomputed.activations < 0.8 * kept.activations


def test_float32_and_dropout_have_fused_kernels_too():
    """Defaults of fine-tuning and of `continued`, which took a loop over sequences with a wait a layer."""
    recipe = recipe_of("bert-base")
    for setting, dropout in ((ONE, 0.1), (ONE._replace(precision="fp32"), 0.0), (ONE._replace(precision="fp32"), 0.1)):
        step = step_of(recipe, setting, outline(recipe, attention_probs_dropout_prob=dropout))
        check(step, setting)
        assert {kernel.kind for kernel in step.micro_batch} == {"attention", "attention_backward", "memory", "product"}


def test_a_head_of_any_size_has_a_fused_kernel():
    recipe = recipe_of("modernbert-base")
    step = step_of(recipe, ONE, outline(recipe, hidden_size=60, num_attention_heads=3))
    check(step, ONE)
    assert [kernel.kind for kernel in step.micro_batch].count("attention") == 3


def test_an_older_gpu_has_a_fused_kernel_too(monkeypatch):
    """Without flash attention, and without a kernel for bf16."""
    monkeypatch.setattr(attention, "_capability", lambda device: (7, 5))
    step = step_of(recipe_of("bert-base"), ONE)
    check(step, ONE)
    assert [kernel.name for kernel in step.micro_batch].count("_efficient_attention_forward") == 2


# What follows breaks the code on purpose: these tests must see it.


def test_a_value_asked_for_in_the_middle_of_a_step_is_seen():
    recipe = recipe_of("bert-base")
    model = outline(recipe)
    model.encoder.layers[0].activation = lambda values: F.gelu(values) * values.sum().item()
    with pytest.raises(AssertionError):
        check(step_of(recipe, ONE, model), ONE)


@pytest.mark.parametrize("blocking", [lambda values: values.cpu().cuda(), lambda values: values * torch.ones(1).cuda()])
def test_a_copy_that_blocks_is_seen(blocking):
    recipe = recipe_of("bert-base")
    model = outline(recipe)
    model.encoder.layers[0].activation = blocking
    with pytest.raises(AssertionError):
        check(step_of(recipe, ONE, model), ONE)


def test_a_sum_in_any_order_is_seen():
    """CUDA has no deterministic kernel for running sums of floats; those of whole numbers are the same anyhow."""
    recipe = recipe_of("bert-base")
    for running, refused in ((lambda values: values.int().cumsum(1), False), (lambda values: values.cumsum(1), True)):
        model = outline(recipe)
        model.encoder.layers[0].activation = lambda values, running=running: F.gelu(values) + running(values)
        with pytest.raises(AssertionError) if refused else contextlib.nullcontext():
            check(step_of(recipe, ONE, model), ONE)


def test_a_weight_in_float32_is_seen():
    """A real GPU would refuse to multiply it by half precision; fake tensors do it without a word."""

    def widened(values):
        with torch.autocast("cuda", enabled=False):
            return values @ torch.empty(values.shape[-1], values.shape[-1], device="cuda")

    recipe = recipe_of("bert-base")
    model = outline(recipe)
    model.encoder.layers[0].activation = widened
    step = step_of(recipe, ONE, model)
    assert step.watch.mixed_products
    with pytest.raises(AssertionError):
        check(step, ONE)


def test_a_product_in_float32_is_seen(monkeypatch):
    plain = heads.summed_cross_entropy
    monkeypatch.setattr(heads, "summed_cross_entropy", lambda hidden, *rest: _without_autocast(plain, hidden, *rest))
    with pytest.raises(AssertionError):
        check(step_of(recipe_of("bert-base"), ONE), ONE)


def _without_autocast(function, hidden, *rest):
    with torch.autocast("cuda", enabled=False):
        return function(hidden.float(), *rest)


def test_a_product_of_mixed_types_inside_an_operator_is_seen(monkeypatch):
    """Fake tensors multiply bf16 by float32 without a word, and torch runs an outline in place of an operator."""

    def body(values, cos, sin, count):
        mixed = values.flatten(1)[:, :8] @ cos.new_ones(8, 8)
        return values + 0 * mixed.sum().to(values.dtype)

    monkeypatch.setattr(rotation._rotate, "_init_fn", body)
    with pytest.raises(AssertionError):
        check(step_of(recipe_of("modernbert-base"), ONE), ONE)


def test_a_layer_that_fsdp_forgets_is_seen(monkeypatch):
    chosen = ranks._choose_shards

    def forgetful(accelerator, model):
        chosen(accelerator, model)
        accelerator.state.fsdp_plugin.transformer_cls_names_to_wrap = []

    monkeypatch.setattr(ranks, "_choose_shards", forgetful)
    with pytest.raises(AssertionError):
        check(step_of(recipe_of("bert-base"), FSDP), FSDP, 2)


def test_gradients_summed_in_half_precision_are_seen(monkeypatch):
    chosen = ranks._choose_shards

    def rounding(accelerator, model):
        chosen(accelerator, model)
        policy = accelerator.state.fsdp_plugin.mixed_precision_policy
        object.__setattr__(policy, "reduce_dtype", torch.bfloat16)

    monkeypatch.setattr(ranks, "_choose_shards", rounding)
    with pytest.raises(AssertionError):
        check(step_of(recipe_of("bert-base"), FSDP), FSDP, 2)
