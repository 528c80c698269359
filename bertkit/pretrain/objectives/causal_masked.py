"""Masked-language modeling, and in a share of the rows of every batch next tokens, read from left to right.

A causal row has a target at every token, where a masked row has them at a few: the encoder learns from all of the row.
What is exported is an ordinary masked LM.
"""

from dataclasses import replace

from bertkit.config.recipe import Recipe
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective
from bertkit.pretrain.objectives.causal_rows import CausalAndMaskedLM, CausalRows
from bertkit.pretrain.objectives.masked_lm import make_masking, masked_lm


def causal_masked(recipe: Recipe, data: PretrainingData) -> Objective:
    share, masked = recipe.train.causal_share, masked_lm(recipe, data)
    return replace(
        masked,
        summary=f"{masked.summary}; {share:.0%} of the rows read from left to right",
        make_model=CausalAndMaskedLM,
        make_collator=lambda total_steps: CausalRows(make_masking(recipe, data, total_steps), lambda step: share),
        exported=lambda model: model.masked_lm(),
    )
