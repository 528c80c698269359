"""What a run needs at least is counted by hand, and is never more than what it takes."""

import torch

from bertkit.config.recipe import read_recipe
from bertkit.model import build_encoder
from bertkit.pretrain.needs import memory_needs


def recipe_of(*changes: str):
    shape = ["model.hidden_size=8", "model.num_hidden_layers=3", "model.num_attention_heads=2"]
    shape += ["model.intermediate_size=16", "train.global_batch=6", "train.micro_batch=4", "optim.name=adamw"]
    return read_recipe("bert-mini", ["data.corpus=text.txt", *shape, *changes])


def test_needs_by_hand(monkeypatch):
    recipe = recipe_of()
    config = recipe.model.encoder_config(100, 0)
    encoder = build_encoder(config)
    in_layers = sum(param.numel() for param in encoder.layers.parameters())
    beside = sum(param.numel() for param in encoder.parameters()) - in_layers
    assert memory_needs(recipe, config, tokens_per_row=10) == {
        "model.hidden_size": 16 * in_layers,
        "tokenizer.vocab_size": 16 * beside,
        "train.micro_batch": 2 * 40 * 3 * (4 * 8 + 16),
        "train.global_batch": 6 * (16 + 90),
    }
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert memory_needs(recipe, config, tokens_per_row=10)["train.micro_batch"] == 2 * 30 * 3 * (4 * 8 + 16)
    fewer = memory_needs(recipe_of("train.gradient_checkpointing=true"), config, tokens_per_row=10)
    assert fewer["train.micro_batch"] == 2 * 30 * 3 * 8


def test_a_step_keeps_at_least_as_many_activations_as_are_counted():
    config = recipe_of().model.encoder_config(100, 0)
    encoder, kept = build_encoder(config), 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += 0 if isinstance(tensor, torch.nn.Parameter) else tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        encoder(torch.ones(4, 10, dtype=torch.int64), torch.ones(4, 10, dtype=torch.int64))
    assert memory_needs(recipe_of(), config, tokens_per_row=10)["train.micro_batch"] <= kept
