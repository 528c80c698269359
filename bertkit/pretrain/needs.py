"""The least memory and files that a pretraining run needs, checked before anything large is made."""

import math
import os

import torch

from bertkit.config.recipe import Recipe
from bertkit.hf import load_outline
from bertkit.model.config import EncoderConfig
from bertkit.model.initialization import outline_encoder
from bertkit.pretrain.data import PretrainingData
from bertkit.run.folder import num_launched
from bertkit.run.optim import MOMENTS
from bertkit.run.room import activation_bytes, check_memory, check_open_files

_SMALLEST_VOCABULARY = 64


def check_shape(recipe: Recipe) -> None:
    """Refuse, before the text is prepared, a model that does not fit with any text."""
    if recipe.model.init is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        config = recipe.model.encoder_config(_SMALLEST_VOCABULARY, None)
        check_memory(memory_needs(recipe, config, tokens_per_row=1), device)


def check_needs(recipe: Recipe, data: PretrainingData, device: torch.device) -> None:
    """Refuse a run that does not fit with this text."""
    if data.init is not None:
        config = load_outline(data.init).config
    else:
        config = recipe.model.encoder_config(data.tokenizer.vocab_size, data.tokenizer.special.pad_id)
    needs = memory_needs(recipe, config, data.train.num_tokens / max(len(data.train), 1))
    check_memory(needs, device)
    check_open_files(data.train.num_files + data.validation.num_files)


def memory_needs(recipe: Recipe, config: EncoderConfig, tokens_per_row: float) -> dict[str, float]:
    """Bytes by the key that they grow with: weights with their gradients and moments, activations, rows. Each is less
    than what a run takes."""
    train = recipe.train
    rows_here = math.ceil(train.global_batch / num_launched())
    tokens_at_once = min(train.micro_batch, rows_here) * tokens_per_row
    sharded = num_launched() if os.environ.get("ACCELERATE_USE_FSDP") == "true" else 1
    # The weight itself, its gradient, what the optimizer keeps, and the mean.
    bytes_per_weight = 4 * (2 + MOMENTS.get(recipe.optim.name, 0) + bool(train.average)) / sharded
    encoder = outline_encoder(config)
    in_layers = sum(param.numel() for param in encoder.layers.parameters())
    beside = sum(param.numel() for param in encoder.parameters()) - in_layers
    shape = "model.hidden_size" if recipe.model.init is None else "model.init"
    if config.intermediate_size > 8 * config.hidden_size:
        shape = "model.intermediate_size"
    return {
        shape: bytes_per_weight * in_layers,
        "tokenizer.vocab_size": bytes_per_weight * beside,
        "train.micro_batch": activation_bytes(config, tokens_at_once, train.gradient_checkpointing),
        "train.global_batch": rows_here * (16 + 9 * tokens_per_row),
    }
