"""An objective is a row: the loop trains whatever it gives, resumes it, and exports what it says."""

import json
from functools import partial

import pytest
import torch
from grammar import write_corpus
from torch import nn

from bertkit import load
from bertkit.config.recipe import read_recipe
from bertkit.model import BertConfig, Encoder, build_encoder
from bertkit.pretrain.card import model_card
from bertkit.pretrain.objectives import OBJECTIVES, Objective
from bertkit.pretrain.train import pretrain
from bertkit.run.state import LoopState
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.loader import evaluation_batches

SMALL = [
    "data.seq_len=32",
    "data.validation_share=0.2",
    "tokenizer.vocab_size=160",
    "model.hidden_size=32",
    "model.num_hidden_layers=2",
    "model.num_attention_heads=2",
    "model.intermediate_size=64",
    "train.global_batch=8",
    "train.micro_batch=4",
    "train.steps=4",
    "eval.every=2",
    "run.num_workers=0",
]


class WordStarts(nn.Module):
    """Says of a masked token whether it began a word."""

    def __init__(self, encoder: Encoder, seed: int):
        super().__init__()
        self.encoder, self.score = encoder, nn.Linear(encoder.config.hidden_size, 1)
        nn.init.normal_(self.score.weight, generator=torch.Generator().manual_seed(seed))

    def forward(self, batch):
        logits = self.target_logits(batch)
        return nn.functional.binary_cross_entropy_with_logits(logits, batch.target_starts_word.float(), reduction="sum")

    def target_logits(self, batch):
        return self.score(self.encoder.encode(batch)[batch.target_index]).squeeze(1)


@torch.no_grad()
def mean_loss(rows, collator, evaluation):
    batches = list(evaluation_batches(rows, collator, micro_batch=4))
    total, count = sum(map(evaluation.loss, batches)), sum(len(batch.target_ids) for batch in batches)
    return {"loss": float(total) / count}


def word_starts(recipe, data) -> Objective:
    collator = partial(MaskingCollator.from_config, data.tokenizer, recipe.mask, seed=recipe.run.seed, layout="packed")
    return Objective(
        summary="which masked tokens began a word",
        make_model=lambda start, seed: WordStarts(start.encoder, seed),
        make_collator=lambda total_steps: collator(total_steps=total_steps),
        make_scorer=lambda rows: partial(mean_loss, rows, collator()),
        exported=lambda model: model.encoder,
    )


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setitem(OBJECTIVES._rows, "word-starts", word_starts)
    corpus = write_corpus(tmp_path / "text.txt", count=60)
    places = [f"data.corpus={corpus}", f"data.cache_dir={tmp_path / 'cache'}", f"run.dir={tmp_path / 'run'}"]
    recipe = read_recipe("bert-mini", [*places, *SMALL, "train.objective=word-starts"])
    assert pretrain(recipe) == 0
    return tmp_path / "run"


def test_a_model_that_is_no_masked_lm_is_trained_scored_and_exported_in_part(run):
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    scored = {record["step"]: record["loss"] for record in records if record["kind"] == "eval"}
    assert list(scored) == [2, 4]
    assert 0 < scored[4] < scored[2]
    assert isinstance(load(run / "export"), Encoder)
    card = (run / "export" / "README.md").read_text()
    assert "pipeline_tag: feature-extraction" in card
    assert "word-starts, which masked tokens began a word" in card


def test_a_card_says_what_was_learned_how_long_and_how_well():
    recipe = read_recipe("bert-mini", ["data.corpus=text.txt", "run.dir=runs/mine"])
    encoder = build_encoder(BertConfig(hidden_size=32, num_attention_heads=2, num_hidden_layers=1))
    card = model_card(recipe, encoder, "something", LoopState(step=7, tokens=1234), 0.5, {"loss": 1.25})
    parts = [
        "pipeline_tag: feature-extraction",
        "# mine",
        "something",
        "Steps: 7",
        "1,234",
        "0.50 times",
        "1.2500",
        "train:",
    ]
    assert sorted(map(card.index, parts)) == list(map(card.index, parts))
