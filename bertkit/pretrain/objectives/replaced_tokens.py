"""Replaced-token detection: a small generator fills the masks, and the encoder says of every token whether it is real.

So the encoder learns from all tokens of a row and never sees a mask (ELECTRA, Clark and others 2020). The generator is
a masked LM with fewer blocks, on the same token embeddings. Exported is the encoder alone.
"""

# T tokens in the pack, M masked tokens, V vocabulary, P pairs, 2 the good and the bad sentence of each

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.config.recipe import Recipe
from bertkit.evaluate.held_out import MASK_SEED
from bertkit.evaluate.judge import EncodedPairs
from bertkit.evaluate.pseudo_likelihood import BATCH_TOKENS
from bertkit.hf import Model
from bertkit.model import Encoder, MaskedLM
from bertkit.model.heads import LabelHead
from bertkit.model.initialization import fill, initialize, outline_encoder
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective, Scorer
from bertkit.pretrain.objectives.masked_lm import make_masking
from bertkit.run.ranks import Evaluation
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.keyed import fold, row_keys, token_bits
from data_pipelines.masks.loader import evaluation_batches
from data_pipelines.rows.batch import RowBatch
from data_pipelines.rows.shards import Rows
from data_pipelines.vocab.tokenizer import SpecialIds

_DRAWN = 0xE1EC
"""Part of the keys that replacements are drawn with."""


class DrawnTargets:
    """Collates rows as `masking` does, with a random number for each target: a function of (seed, epoch, row,
    position)."""

    def __init__(self, masking: MaskingCollator):
        self.masking = masking

    def collate_rows(self, rows: RowBatch, row_ids: np.ndarray, epochs: np.ndarray, step: int) -> PackedBatch:
        self.masking.return_tensors = "np"
        batch = self.masking.collate_rows(rows, row_ids, epochs, step)
        keys_R = row_keys(row_ids, fold(self.masking.seed, _DRAWN), epochs)
        draws_T = token_bits(keys_R, rows.row_starts) / 2.0**64
        return replace(batch, target_draws=draws_T[batch.target_index].astype(np.float32))


class ReplacedTokenDetector(nn.Module):
    """An encoder with a score for each token, above 0 for a replaced one, and the generator that replaces them."""

    drawable_V: Tensor

    def __init__(self, encoder: Encoder, drawable: Sequence[int], num_layers: int, weight: float, seed: int):
        super().__init__()
        config = replace(encoder.config, num_hidden_layers=num_layers)
        with torch.device("meta"):
            head = LabelHead(encoder.config, 1)
        encoder.take_pooler()
        small = outline_encoder(config, fold(seed, _DRAWN) % 2**63)
        initialize(head, encoder, seed)
        small.tokens = encoder.tokens
        fill(small, encoder.tokens.weight.device)
        self.encoder, self.head, self.generator, self.weight = encoder, head, MaskedLM(small, seed), weight
        drawable_V = torch.zeros(config.vocab_size, dtype=torch.bool)
        drawable_V[list(drawable)] = True
        self.register_buffer("drawable_V", drawable_V, persistent=False)

    def forward(self, batch: Any) -> Tensor:
        """The generator's loss summed over the masked tokens, and the weighted loss of detection over all tokens."""
        logits_MV = self.generator.target_logits(batch).float()
        masked_loss = F.cross_entropy(logits_MV, batch.target_ids, reduction="sum")
        new_M = self.drawn(logits_MV.detach(), batch.target_draws)
        replaced_T = torch.zeros_like(batch.input_ids, dtype=torch.bool)
        replaced_T = replaced_T.index_copy(0, batch.target_index, new_M != batch.target_ids)
        shown = replace(batch, input_ids=batch.input_ids.index_copy(0, batch.target_index, new_M))
        logits_T = self.head(self.encoder.encode(shown)).squeeze(1).float()
        detection = F.binary_cross_entropy_with_logits(logits_T, replaced_T.to(logits_T.dtype), reduction="sum")
        return masked_loss + self.weight * detection

    def drawn(self, logits_MV: Tensor, draws_M: Tensor) -> Tensor:
        """(M,) an ordinary token for each target, as likely as the generator finds it."""
        shares_MV = logits_MV.masked_fill(~self.drawable_V, -torch.inf).softmax(dim=1)
        # In whole numbers, which add up to the same in any order; of floats, CUDA has no such sum.
        reached_MV = (shares_MV * 2**30).int().cumsum(dim=1, dtype=torch.int32)
        total_M1 = reached_MV[:, -1:]
        wanted_M1 = torch.minimum((draws_M[:, None].double() * total_M1).int(), total_M1 - 1)
        return torch.searchsorted(reached_MV, wanted_M1, right=True).squeeze(1)

    def target_logits(self, batch: Any) -> Tensor:
        """(M,) the scores of the batch's targets, among its tokens as they are."""
        at, order = batch.target_index.sort()
        return self.head(self.encoder.encode(batch, at)).squeeze(1)[order.argsort()]


def replaced_token_detection(recipe: Recipe, data: PretrainingData) -> Objective:
    train, mask = recipe.train, recipe.mask

    def make_model(start: Model, seed: int) -> nn.Module:
        num_layers = train.generator_layers or max(1, start.encoder.config.num_hidden_layers // 4)
        drawable = make_masking(recipe, data, 0).vocabulary.drawable.tolist()
        # The loop divides by the number of masked tokens; times their rate, that is by about that of all.
        return ReplacedTokenDetector(start.encoder, drawable, num_layers, train.detection_weight * mask.rate, seed)

    return Objective(
        summary=f"which tokens a generator replaced, of {mask.rate:.0%} that it could",
        make_model=make_model,
        make_collator=lambda total_steps: DrawnTargets(make_masking(recipe, data, total_steps)),
        make_scorer=lambda rows: _scorer(recipe, data, rows),
        judge=sentence_scores,
        exported=lambda model: model.encoder,
    )


def _scorer(recipe: Recipe, data: PretrainingData, rows: Rows) -> Scorer:
    """How well held-out tokens, half of them replaced at random, are distinguished: the same for all models,
    where a generator that gets better would make it harder."""
    mask = replace(recipe.mask, rate=recipe.eval.mask_rate, final_rate=None, mask_share=0.0, random_share=0.5)
    collator = MaskingCollator.from_config(data.tokenizer, mask, seed=MASK_SEED, layout="packed")

    @torch.no_grad()
    def score(evaluation: Evaluation) -> dict[str, Any]:
        tally = torch.zeros(3, dtype=torch.float64, device=evaluation.device)
        batches = partial(evaluation_batches, rows, collator, rank=evaluation.rank, world_size=evaluation.world_size)
        for batch in batches(micro_batch=recipe.train.micro_batch, max_rows=recipe.eval.max_rows):
            batch = batch.to(evaluation.device)
            replaced_M = batch.input_ids[batch.target_index] != batch.target_ids
            logits_M = evaluation.target_logits(batch).float()
            loss = F.binary_cross_entropy_with_logits(logits_M, replaced_M.float(), reduction="sum")
            right = ((logits_M > 0) == replaced_M).sum()
            tally += torch.stack([loss.double(), right.double(), torch.full_like(loss, len(logits_M)).double()])
        loss, right, count = evaluation.sum_over_ranks(tally).tolist()
        return {"loss": loss / max(count, 1), "accuracy": right / max(count, 1), "measures": "random tokens detected"}

    return score


@torch.no_grad()
def sentence_scores(pairs: EncodedPairs, evaluation: Evaluation) -> np.ndarray:
    """(P, 2) how surely all tokens of a sentence are real: their log-probabilities added up, from one pass."""
    scores = torch.zeros(len(pairs.sentences), dtype=torch.float64)
    mine = range(evaluation.rank, len(pairs.sentences), evaluation.world_size)
    at_once = max(1, BATCH_TOKENS // max(len(sentence.ids) + 2 for sentence in pairs.sentences))
    for first in range(0, len(mine), at_once):
        indices = mine[first : first + at_once]
        batch, lengths = _packed([pairs.sentences[index].ids for index in indices], pairs.special, evaluation.device)
        real_M = F.logsigmoid(-evaluation.target_logits(batch).double()).cpu()
        scores[list(indices)] = torch.stack([part.sum() for part in real_M.split(lengths)])
    return pairs.of_pairs(evaluation.sum_over_ranks(scores).cpu().numpy())


def _packed(
    sentences: Sequence[Sequence[int]], special: SpecialIds, device: torch.device
) -> tuple[SimpleNamespace, list[int]]:
    """Sentences between their special tokens, every other token a target; and how many targets each has."""
    before, after = ([] if index is None else [index] for index in (special.cls_id, special.sep_id))
    rows = [[*before, *ids, *after] for ids in sentences]
    borders = [0, *itertools.accumulate(map(len, rows))]
    inside = [range(start + len(before), end - len(after)) for start, end in itertools.pairwise(borders)]
    packed = SimpleNamespace(
        input_ids=torch.tensor([index for row in rows for index in row], device=device),
        position_ids=torch.tensor([place for row in rows for place in range(len(row))], device=device),
        cu_seqlens=torch.tensor(borders, dtype=torch.int32, device=device),
        max_seqlen=max(map(len, rows)),
        target_index=torch.tensor([place for places in inside for place in places], device=device),
    )
    return packed, [len(places) for places in inside]
