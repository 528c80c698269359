"""Scores by bucket: which masked tokens are counted together, and what the sums over them mean. No torch is needed."""

# M masked tokens of a batch, V vocabulary, B buckets

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from data_pipelines.masks.batch import PackedBatch

FREQUENT_SHARE = 0.5
"""The frequent tokens are the fewest that make up this share of the training text; all others are rare."""

BUCKETS = ("all", "masked", "random", "kept", "frequent", "rare", "first_piece", "later_piece")


def score_arrays(
    target_logits: Callable[[PackedBatch], np.ndarray], batches: Iterable[PackedBatch], frequent_V: np.ndarray
) -> dict[str, Any]:
    """Scores over all targets of batches of arrays; as `masked_loss.score_batches`, which asks torch."""
    tally_B3 = np.zeros((len(BUCKETS), 3))
    for batch in batches:
        logits_MV = target_logits(batch)
        loss_M = -log_probs(logits_MV, batch.target_ids)
        right_M = logits_MV.argmax(axis=1) == batch.target_ids
        members_BM = np.stack(
            members_of(batch.target_starts_word.astype(bool), batch.target_kind, frequent_V[batch.target_ids])
        )
        tally_B3 += members_BM.astype(float) @ np.stack([np.ones_like(loss_M), loss_M, right_M], axis=1)
    return scores_of(tally_B3)


def log_probs(logits_MV: np.ndarray, target_M: np.ndarray) -> np.ndarray:
    """(M,) log-probabilities of the targets."""
    shifted_MV = logits_MV - logits_MV.max(axis=1, keepdims=True)
    return shifted_MV[np.arange(len(target_M)), target_M] - np.log(np.exp(shifted_MV).sum(axis=1))


def members_of(first_M: Any, kind_M: Any, frequent_M: Any) -> list[Any]:
    """Which targets are in each bucket, from whether they start a word, what replaced them and whether they are
    frequent; arrays or tensors."""
    kinds = [kind_M == kind for kind in range(3)]
    return [first_M | ~first_M, *kinds, frequent_M, ~frequent_M, first_M, ~first_M]


def scores_of(tally_B3: Any) -> dict[str, Any]:
    """What the count, the summed loss and the hits of each bucket mean; an array or a tensor."""
    buckets = {}
    for name, (count, loss, right) in zip(BUCKETS, tally_B3.tolist(), strict=True):
        if count:
            buckets[name] = {"targets": int(count), "loss": loss / count, "accuracy": right / count}
    whole = buckets.pop("all", {"targets": 0, "loss": math.nan, "accuracy": math.nan})
    return {**whole, "perplexity": math.exp(min(whole["loss"], 700.0)), "buckets": buckets}


def frequent_tokens(counts_V: np.ndarray) -> np.ndarray:
    """Which tokens are frequent, from how often each occurs in the training text."""
    order = np.argsort(-counts_V, kind="stable")
    before = np.cumsum(counts_V[order]) - counts_V[order]
    frequent_V = np.zeros(len(counts_V), bool)
    frequent_V[order[before < FREQUENT_SHARE * counts_V.sum()]] = True
    return frequent_V


def unigram_loss(counts_V: np.ndarray) -> float:
    """The loss of always predicting tokens by their frequency alone: what a model must get below."""
    share = counts_V[counts_V > 0] / max(counts_V.sum(), 1)
    return float(-(share * np.log(share)).sum())
