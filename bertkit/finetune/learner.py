"""A model with a head enters; what an optimizer step calls leaves: its loss, and how fast each part of it learns."""

# K labels

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.finetune.batches import LabeledBatch
from bertkit.finetune.inputs import Inputs
from bertkit.finetune.start import Head


class Learner(nn.Module):
    """A model together with its loss: what the optimizer step calls."""

    weights_K: Tensor | None

    def __init__(self, model: Head, weights_K: Tensor | None):
        super().__init__()
        self.model = model
        self.register_buffer("weights_K", weights_K, persistent=False)

    def forward(self, batch: LabeledBatch) -> Tensor:
        """Cross-entropy summed over the batch's answers."""
        return F.cross_entropy(self.target_logits(batch), batch.target_ids, weight=self.weights_K, reduction="sum")

    def target_logits(self, batch: LabeledBatch) -> Tensor:
        return self.model.target_logits(batch)


def layer_speed(model: Head, decay: float) -> Callable[[str], float]:
    """The share of the learning rate each parameter gets, by its name: the head all of it, each layer below less."""
    depth = model.config.num_hidden_layers

    def speed(name: str) -> float:
        _, part, *rest = name.split(".")  # model.head... or model.encoder.layers.3...
        if part == "head" or rest[0] in model.encoder.above_layers:
            return 1.0
        return decay ** (depth - int(rest[1]) if rest[0] == "layers" else depth + 1)

    return speed


def class_weights(inputs: Inputs) -> Tensor:
    """More for rare labels, by the root of their rarity, so that the mean weight of an answer is 1."""
    counts_K = np.bincount(np.concatenate(inputs.answers), minlength=len(inputs.labeled.labels))
    weights_K = 1 / np.sqrt(np.maximum(counts_K, 1))
    return torch.tensor(weights_K * counts_K.sum() / (weights_K * counts_K).sum(), dtype=torch.float32)
