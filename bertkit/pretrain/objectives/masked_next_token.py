"""Masked next tokens: what a mask hides is said one place before it, as next tokens are in causal rows.

So one head answers for both, and no weight is there for one of them only (GPT-BERT, Charpentier and Samuel 2024). A
masked LM as transformers opens it answers at the mask itself, so what is exported is the encoder alone.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from bertkit.config.recipe import Recipe
from bertkit.hf import Model
from bertkit.model import MaskedLM
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective
from bertkit.pretrain.objectives.causal_masked import causal_masked


class MaskedNextTokenLM(MaskedLM):
    """A masked LM that answers for each token one place before it; for the first of a sequence at its own place."""

    kind = "masked-next-token"

    def __init__(self, start: Model, seed: int):
        super().__init__(start.encoder, seed)

    def places(self, batch: Any) -> Tensor:
        index_M = batch.target_index
        return index_M - (batch.position_ids[index_M] > 0).long()


def masked_next_token(recipe: Recipe, data: PretrainingData) -> Objective:
    mixed = causal_masked(recipe, data)
    return replace(
        mixed,
        summary=f"{mixed.summary}; every token predicted one position earlier",
        make_model=MaskedNextTokenLM,
        exported=lambda model: model.encoder,
    )
