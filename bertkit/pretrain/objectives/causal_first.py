"""Next tokens, read from left to right, in the first steps; masked-language modeling in the others."""

from dataclasses import replace
from functools import partial

from bertkit.config.recipe import Recipe
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective
from bertkit.pretrain.objectives.causal_masked import causal_masked
from bertkit.pretrain.objectives.causal_rows import CausalRows
from bertkit.pretrain.objectives.masked_lm import make_masking, masked_lm


def causal_first(recipe: Recipe, data: PretrainingData) -> Objective:
    share = recipe.train.causal_share

    def make_collator(total_steps: int, share: float = share) -> CausalRows:
        causal_steps = round(share * total_steps)
        return CausalRows(make_masking(recipe, data, total_steps), lambda step: float(step < causal_steps))

    return replace(
        causal_masked(recipe, data),
        summary=f"{masked_lm(recipe, data).summary}, after {share:.0%} of the steps read from left to right",
        make_collator=make_collator,
        opening=share,
        make_later_collator=partial(make_collator, share=0.0),
    )
