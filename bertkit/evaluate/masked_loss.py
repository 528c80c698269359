"""Loss, perplexity and accuracy of a model on masked tokens, over all of them and by bucket."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from data_pipelines.masks.batch import PackedBatch

# M masked tokens of a batch, V vocabulary, B buckets

FREQUENT_SHARE = 0.5
"""The frequent tokens are the fewest that make up this share of the training text; all others are rare."""

BUCKETS = ("all", "masked", "random", "kept", "frequent", "rare", "first_piece", "later_piece")


@torch.no_grad()
def score_batches(
    target_logits: Callable[[PackedBatch], Tensor],
    batches: Iterable[PackedBatch],
    frequent_V: Tensor,
    device: torch.device,
    sum_over_ranks: Callable[[Tensor], Tensor] = lambda tally: tally,
) -> dict[str, Any]:
    """Scores over all targets; every target counts the same, whatever its batch or rank."""
    # On the device: the host waits for it once, at the end.
    tally_B3 = torch.zeros(len(BUCKETS), 3, dtype=torch.float64, device=device)
    frequent_V = frequent_V.to(device)
    for batch in batches:
        batch = batch.to(device)
        logits_MV = target_logits(batch).float()
        loss_M = F.cross_entropy(logits_MV, batch.target_ids, reduction="none")
        right_M = logits_MV.argmax(dim=1) == batch.target_ids
        frequent_M = frequent_V[batch.target_ids]
        first_M, kind_M = batch.target_starts_word.to(device).bool(), batch.target_kind.to(device)
        members_BM = torch.stack(
            [
                torch.ones_like(first_M),
                *(kind_M == kind for kind in range(3)),
                frequent_M,
                ~frequent_M,
                first_M,
                ~first_M,
            ]
        )
        facts_M3 = torch.stack([torch.ones_like(loss_M), loss_M, right_M.float()], dim=1)
        tally_B3 += (members_BM.float() @ facts_M3).double()
    return _scores(sum_over_ranks(tally_B3).cpu())


def frequent_tokens(counts_V: np.ndarray) -> Tensor:
    """Which tokens are frequent, from how often each occurs in the training text."""
    order = np.argsort(-counts_V, kind="stable")
    before = np.cumsum(counts_V[order]) - counts_V[order]
    frequent_V = np.zeros(len(counts_V), bool)
    frequent_V[order[before < FREQUENT_SHARE * counts_V.sum()]] = True
    return torch.from_numpy(frequent_V)


def unigram_loss(counts_V: np.ndarray) -> float:
    """The loss of always predicting tokens by their frequency alone: what a model must get below."""
    share = counts_V[counts_V > 0] / max(counts_V.sum(), 1)
    return float(-(share * np.log(share)).sum())


def _scores(tally_B3: Tensor) -> dict[str, Any]:
    buckets = {}
    for name, (count, loss, right) in zip(BUCKETS, tally_B3.tolist(), strict=True):
        if count:
            buckets[name] = {"targets": int(count), "loss": loss / count, "accuracy": right / count}
    whole = buckets.pop("all", {"targets": 0, "loss": math.nan, "accuracy": math.nan})
    return {**whole, "perplexity": math.exp(min(whole["loss"], 700.0)), "buckets": buckets}
