"""What an optimizer step calls: a model with its task's loss; and how fast each part of it learns."""

# M answers of a batch, K labels

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.finetune.tasks.task import Task
from bertkit.finetune.windows import Row
from bertkit.model.heads import ModelWithHead


class ModelWithLoss(nn.Module):
    """A model whose forward pass gives the loss of a batch, summed over its answers."""

    weights_K: Tensor | None

    def __init__(self, model: ModelWithHead, task: Task, weights_K: Tensor | None = None):
        super().__init__()
        self.model = model
        self._loss = task.loss or cross_entropy
        self.register_buffer("weights_K", weights_K, persistent=False)

    def forward(self, batch: Any) -> Tensor:
        # Not through the method below, around which FSDP gathers weights once more.
        logits_MK = self.model.target_logits(batch)
        if batch.target_group is not None:
            logits_MK = _mean_by_group(logits_MK, batch.target_group, len(batch.target_ids))
        return self._loss(logits_MK, batch.target_ids, self.weights_K)

    def target_logits(self, batch: Any) -> Tensor:
        return self.model.target_logits(batch)


def _mean_by_group(logits_MK: Tensor, group_M: Tensor, num_groups: int) -> Tensor:
    sum_GK = logits_MK.new_zeros(num_groups, logits_MK.shape[1]).index_add(0, group_M, logits_MK)
    # Counted like this, because bincount makes the host wait for a GPU.
    count_G = logits_MK.new_zeros(num_groups).index_add(0, group_M, logits_MK.new_ones(len(group_M)))
    return sum_GK / count_G[:, None]


def cross_entropy(logits_MK: Tensor, target_M: Tensor, weights_K: Tensor | None) -> Tensor:
    return F.cross_entropy(logits_MK, target_M, weight=weights_K, reduction="sum")


def class_weights(rows: Sequence[Row], num_labels: int) -> Tensor:
    """More for rare labels, by the root of their rarity, so that the mean weight of an answer is 1."""
    targets = [row.target_M for row in rows if row.target_M is not None]
    targets_M = np.concatenate(targets)
    counts_K = np.bincount(targets_M, minlength=num_labels) if targets_M.ndim == 1 else targets_M.sum(axis=0)
    weights_K = 1 / np.sqrt(np.maximum(counts_K, 1))
    return torch.tensor(weights_K * counts_K.sum() / (weights_K * counts_K).sum(), dtype=torch.float32)


def layer_lr_scale(model: ModelWithHead, decay: float) -> Callable[[str], float]:
    """The share of the learning rate each parameter gets, by its name: the head all of it, each layer below less."""
    depth = model.config.num_hidden_layers

    def lr_scale(name: str) -> float:
        _, part, *rest = name.split(".")  # model.head... or model.encoder.layers.3...
        if part == "head" or rest[0] in model.encoder.above_layers:
            return 1.0
        return decay ** (depth - int(rest[1]) if rest[0] == "layers" else depth + 1)

    return lr_scale
