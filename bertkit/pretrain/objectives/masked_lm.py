"""Masked-language modeling: some tokens are hidden, and the model predicts them."""

from torch import nn

from bertkit.config.recipe import Recipe
from bertkit.evaluate.buckets import unigram_loss
from bertkit.evaluate.held_out import HeldOut
from bertkit.hf import Model
from bertkit.model import MaskedLM
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective, Scorer
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.rows.shards import Rows


def masked_lm(recipe: Recipe, data: PretrainingData) -> Objective:
    counts_V = data.train.token_counts()

    def make_model(start: Model, seed: int) -> nn.Module:
        return start if start.kind == MaskedLM.kind else MaskedLM(start.encoder, seed)

    def make_scorer(rows: Rows) -> Scorer:
        held_out = HeldOut(
            rows,
            data.tokenizer,
            counts_V,
            mask_rate=recipe.eval.mask_rate,
            max_rows=recipe.eval.max_rows,
            micro_batch=recipe.train.micro_batch,
        )
        return lambda evaluation: held_out.scores(*evaluation[1:])

    return Objective(
        summary=f"{recipe.mask.rate:.0%} of the tokens masked, unit {recipe.mask.unit}",
        make_model=make_model,
        make_collator=lambda total_steps: make_masking(recipe, data, total_steps),
        make_scorer=make_scorer,
        judge=lambda pairs, evaluation: pairs.scores(*evaluation[1:]),
        baseline_loss=unigram_loss(counts_V),
    )


def make_masking(recipe: Recipe, data: PretrainingData, total_steps: int) -> MaskingCollator:
    return MaskingCollator.from_config(
        data.tokenizer, recipe.mask, seed=recipe.run.seed, total_steps=total_steps, layout="packed"
    )
