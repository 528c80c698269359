"""Held-out rows with masks that never change, so that the scores of all models on them compare."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.evaluate.buckets import frequent_tokens, score_arrays
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.loader import evaluation_batches
from data_pipelines.rows.shards import Rows
from data_pipelines.vocab.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# One seed for all runs, so that runs with different seeds are scored on the same tokens.
MASK_SEED = 20_181_011


class HeldOut:
    """Held-out rows, ready to be scored."""

    def __init__(
        self,
        rows: Rows,
        tokenizer: Tokenizer,
        counts_V: np.ndarray,
        *,
        mask_rate: float,
        max_rows: int,
        micro_batch: int,
    ):
        self._rows = rows
        self._collator = MaskingCollator.from_config(
            tokenizer, MaskConfig(rate=mask_rate), seed=MASK_SEED, layout="packed", return_tensors="np"
        )
        self._frequent_V = frequent_tokens(counts_V)
        self._max_rows, self._micro_batch = max_rows, micro_batch

    def scores(
        self,
        target_logits: Callable[[PackedBatch], Any],
        device: "torch.device | None",
        rank: int = 0,
        world_size: int = 1,
        sum_over_ranks: Callable[["Tensor"], "Tensor"] = lambda tally: tally,
    ) -> dict[str, Any]:
        """Loss, perplexity and accuracy, also by bucket. Torch computes on this device; without one, `target_logits`
        takes and gives arrays. This rank scores its share of the rows, and `sum_over_ranks` adds up what all ranks
        found."""
        if device is None:
            return score_arrays(target_logits, self._batches(), self._frequent_V)
        import torch

        from bertkit.evaluate.masked_loss import score_batches

        batches = (batch.map(torch.as_tensor) for batch in self._batches(rank, world_size))
        frequent_V = torch.from_numpy(self._frequent_V)
        return score_batches(target_logits, batches, frequent_V, device, sum_over_ranks)

    def _batches(self, rank: int = 0, world_size: int = 1) -> Iterator[PackedBatch]:
        return evaluation_batches(
            self._rows,
            self._collator,
            rank=rank,
            world_size=world_size,
            micro_batch=self._micro_batch,
            max_rows=self._max_rows,
        )
