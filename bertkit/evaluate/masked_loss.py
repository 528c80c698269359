"""Loss, perplexity and accuracy of a model on masked tokens, over all of them and by bucket."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.evaluate.buckets import BUCKETS, members_of, scores_of
from data_pipelines.masks.batch import PackedBatch

# M masked tokens of a batch, V vocabulary, B buckets


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
        first_M, kind_M = batch.target_starts_word.to(device).bool(), batch.target_kind.to(device)
        members_BM = torch.stack(members_of(first_M, kind_M, frequent_V[batch.target_ids]))
        facts_M3 = torch.stack([torch.ones_like(loss_M), loss_M, right_M.float()], dim=1)
        tally_B3 += (members_BM.float() @ facts_M3).double()
    return scores_of(sum_over_ranks(tally_B3).cpu())
