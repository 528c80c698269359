"""Rows and a model enter, the scores of every word leave, whatever the split into windows, batches and ranks."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator, DistributedType
from torch import Tensor, nn

from bertkit.finetune.batches import LabeledBatch, by_length, collate
from bertkit.finetune.windows import Row
from bertkit.run.ranks import target_logits_of

# W words over all sentences, M answers of a batch, K labels

MAX_TOKENS = 4096
"""Pieces computed at once in prediction: what the caches of a CPU like, and a GPU does not mind."""


@torch.inference_mode()
def word_logits(
    rows: Sequence[Row],
    num_words: Sequence[int],
    num_labels: int,
    logits_of: Callable[[LabeledBatch], Tensor],
    device: Any = "cpu",
    max_tokens: int = MAX_TOKENS,
) -> Tensor:
    """(W, K), the words of all sentences one after the other; several answers for one word are averaged."""
    starts = [0, *accumulate(num_words)]
    answered = [row.words + starts[row.sentence] for row in rows]
    answers_W = np.bincount(np.concatenate([np.zeros(0, np.int64), *answered]), minlength=starts[-1])
    logits_WK = torch.zeros(starts[-1], num_labels, device=device)
    for chosen in by_length(rows, max_tokens):
        logits_MK = logits_of(collate([rows[index] for index in chosen]).to(torch.device(device))).float()
        index_M = torch.from_numpy(np.concatenate([answered[index] for index in chosen]))
        logits_WK.index_add_(0, index_M.to(device), logits_MK)
    return logits_WK / torch.from_numpy(np.maximum(answers_W, 1)).to(device)[:, None]


def predict_labels(
    model: nn.Module,
    accelerator: Accelerator,
    rows: Sequence[Row],
    num_words: Sequence[int],
    labels: tuple[str, ...],
) -> list[list[str]]:
    """One label a word, the same on every rank; the ranks share the rows."""
    # FSDP computes in step over all ranks, so each goes over all rows.
    alone = accelerator.distributed_type == DistributedType.FSDP or accelerator.num_processes == 1
    if not alone:
        rows = [row for row in rows if row.sentence % accelerator.num_processes == accelerator.process_index]
    training = model.training
    model.eval()
    try:
        logits_WK = word_logits(rows, num_words, len(labels), target_logits_of(model, accelerator), accelerator.device)
    finally:
        model.train(training)
    if not alone:
        torch.distributed.all_reduce(logits_WK)
    best = logits_WK.argmax(dim=1).tolist()
    borders = pairwise([0, *accumulate(num_words)])
    return [[labels[index] for index in best[start:end]] for start, end in borders]
