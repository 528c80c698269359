"""Rows that are read from left to right, each token predicted from those before it, among rows that are masked."""

# T tokens, R rows, S sequences, M targets, D width

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.model import MaskedLM
from bertkit.model.heads import Transform
from bertkit.model.initialization import initialize
from bertkit.model.loss import summed_cross_entropy
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.keyed import fold, mix, row_keys, threshold
from data_pipelines.rows.batch import RowBatch
from data_pipelines.vocab.vocabulary import look_up

_CAUSAL = 0xCA05A1
"""Part of the key that decides which rows are causal."""


class CausalRows:
    """Collates rows as `masking` does, but for a share of them that depends on the step: in those nothing is masked, no
    token sees what comes after it, and every ordinary token after the first of a sequence is a target.

    Which rows is a function of (seed, epoch, row); the others have the masks that they would have had anyway."""

    def __init__(self, masking: MaskingCollator, share_at: Callable[[int], float]):
        self.masking, self.share_at = masking, share_at

    def collate_rows(self, rows: RowBatch, row_ids: np.ndarray, epochs: np.ndarray, step: int) -> PackedBatch:
        self.masking.return_tensors = "np"
        masked = self.masking.collate_rows(rows, row_ids, epochs, step)
        share = self.share_at(step)
        causal_R = np.full(len(row_ids), share >= 1)
        if 0 < share < 1:
            causal_R = mix(row_keys(row_ids, fold(self.masking.seed, _CAUSAL), epochs)) < threshold(share)
        causal_T = causal_R.repeat(np.diff(rows.row_starts))
        starts_S, lengths_S = rows.sequence_starts[:-1], np.diff(rows.sequence_starts)
        target_T = causal_T & look_up(self.masking.vocabulary.maskable_V, rows.ids_T)
        target_T[starts_S[lengths_S > 0]] = False
        target_T[masked.target_index[~causal_T[masked.target_index]]] = True
        target_index = target_T.nonzero()[0]
        sequence_is_causal_S = np.append(causal_T, False)[starts_S]
        return PackedBatch(
            input_ids=np.where(causal_T, rows.ids_T, masked.input_ids),
            position_ids=masked.position_ids,
            cu_seqlens=masked.cu_seqlens,
            max_seqlen=masked.max_seqlen,
            target_index=target_index,
            target_ids=rows.ids_T[target_index].astype(np.int64),
            prefixes=np.where(sequence_is_causal_S, 0, lengths_S).astype(np.int32),
        )


class CausalAndMaskedLM(MaskedLM):
    """A masked LM that also says what comes next, where a sequence is read from left to right. For that it has another
    transform before the same projection: the one answers for a token's own place, the other for the place after."""

    def __init__(self, start: Any, seed: int):
        super().__init__(start.encoder, seed)
        if start.kind == MaskedLM.kind:
            self.head = start.head
        with torch.device("meta"):
            self.next = Transform(self.config.hidden_size, self.config.heads())
        initialize(self.next, self.encoder, fold(seed, _CAUSAL) % 2**63)

    def loss(self, batch: Any) -> Tensor:
        target_M, order = batch.target_index.sort()
        next_M = targets_read_causally(batch, target_M)
        hidden_MD = self.encoder.encode(batch, target_M - next_M.long())
        hidden_MD = torch.where(next_M[:, None], self.next(hidden_MD), self.head.transform(hidden_MD))
        return summed_cross_entropy(hidden_MD, self.decoder_weight, self.head.decoder_bias, batch.target_ids[order])

    def masked_lm(self) -> MaskedLM:
        """The same encoder and head, without the head for next tokens."""
        plain = MaskedLM(self.encoder)
        plain.head = self.head
        return plain


def targets_read_causally(batch: Any, target_M: Tensor) -> Tensor:
    """(M,) whether each of the places lies in a sequence that is read from left to right."""
    if batch.prefixes is None:
        return torch.zeros_like(target_M, dtype=torch.bool)
    sequence_M = torch.searchsorted(batch.cu_seqlens[1:].long(), target_M, right=True)
    return (batch.prefixes == 0)[sequence_M]
