"""A pretraining objective: of some tokens, half of them replaced at random, the model says which were."""

from dataclasses import replace

from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bertkit.pretrain.objectives import OBJECTIVES, Objective
from data_pipelines.masks.collator import MaskingCollator

# M tokens that are asked about


class Detector(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(encoder.config.hidden_size, 1, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, batch):
        logits_M = self.head(self.encoder.encode(batch, at=batch.target_index))[:, 0]
        replaced_M = batch.input_ids[batch.target_index] != batch.target_ids
        return binary_cross_entropy_with_logits(logits_M, replaced_M.to(logits_M.dtype), reduction="sum")


def replaced_tokens(recipe, data) -> Objective:
    mask = replace(recipe.mask, mask_share=0.0, random_share=0.5)
    seed, tokenizer = recipe.run.seed, data.tokenizer
    return Objective(
        summary="tokens told from random ones",
        make_model=lambda start, seed: Detector(start.encoder),
        make_collator=lambda total_steps: MaskingCollator.from_config(
            tokenizer, mask, seed=seed, total_steps=total_steps, layout="packed"
        ),
        exported=lambda model: model.encoder,
    )


OBJECTIVES.add("replaced-tokens", replaced_tokens)
