"""Rows that are never trained on enter with masks that never change; scores of any model on them leave."""

from typing import Any

import numpy as np
import torch
from accelerate import Accelerator, DistributedType
from torch import nn

from bertkit.evaluate.masked_loss import evaluate, frequent_tokens
from bertkit.run.ranks import target_logits_of
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.loader import evaluation_batches
from data_pipelines.rows.shards import Rows
from data_pipelines.vocab.tokenizer import Tokenizer

# One seed for all runs, so that runs with different seeds are asked for the same tokens.
MASK_SEED = 20_181_011


class HeldOut:
    """Held-out rows, ready to be asked about."""

    def __init__(
        self,
        rows: Rows | None,
        tokenizer: Tokenizer,
        counts_V: np.ndarray,
        *,
        mask_rate: float,
        max_rows: int,
        micro_batch: int,
    ):
        self._rows = rows if rows is not None and len(rows) else None
        self._collator = MaskingCollator.from_config(
            tokenizer, MaskConfig(rate=mask_rate), seed=MASK_SEED, layout="packed"
        )
        self._frequent_V = frequent_tokens(counts_V)
        self._max_rows, self._micro_batch = max_rows, micro_batch

    def scores(self, model: nn.Module, accelerator: Accelerator) -> dict[str, Any] | None:
        """Loss, perplexity and accuracy, also by bucket; None without rows. All ranks take part."""
        if self._rows is None:
            return None
        # FSDP computes in step over all ranks, so each goes over all rows; otherwise they share them.
        alone = accelerator.distributed_type == DistributedType.FSDP or accelerator.num_processes == 1
        batches = evaluation_batches(
            self._rows,
            self._collator,
            rank=0 if alone else accelerator.process_index,
            world_size=1 if alone else accelerator.num_processes,
            micro_batch=self._micro_batch,
            max_rows=self._max_rows,
        )

        def agree(tally: torch.Tensor) -> torch.Tensor:
            if not alone:
                tally = tally.to(accelerator.device)
                torch.distributed.all_reduce(tally)
            return tally

        training = model.training
        model.eval()
        try:
            return evaluate(target_logits_of(model, accelerator), batches, self._frequent_V, accelerator.device, agree)
        finally:
            model.train(training)
