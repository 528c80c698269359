"""Every pretraining objective, and `continued`, as a GPU would train it: its model, and batches of its collator."""

from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_step import FSDP, ONE, check, needs_fake_cuda
from grammar import write_corpus
from small_model import save_small_model

from bertkit.config.recipe import Recipe, read_recipe
from bertkit.plan.rehearsal import Setting, Shape, rehearse
from bertkit.pretrain.data import open_data
from bertkit.pretrain.objectives import OBJECTIVES
from bertkit.pretrain.start_model import build_model
from bertkit.run.ranks import layers_of
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan

pytestmark = needs_fake_cuda
SMALL = [
    *("data.seq_len=24", "tokenizer.vocab_size=160", "mask.rate=0.3", "model.hidden_size=32"),
    *("model.num_hidden_layers=3", "model.num_attention_heads=2", "model.intermediate_size=48"),
    *("model.embeddings=random", "train.global_batch=8", "train.micro_batch=8", "run.dir=none"),
]


CASES = [
    *((name, "bert-mini", ONE) for name in sorted(OBJECTIVES)),
    *((name, "modernbert-mini", FSDP) for name in sorted({*OBJECTIVES} - {"masked-lm", "diffusion", "hard-targets"})),
]
"""Those that are left out differ from others in nothing that a GPU could see: it gets the same model and batch."""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    return [f"data.corpus={write_corpus(folder / 'text.txt', count=60)}", f"data.cache_dir={folder / 'cache'}"]


@pytest.mark.parametrize(("name", "family", "setting"), CASES, ids=lambda value: getattr(value, "num_gpus", value))
def test_every_objective_waits_once_and_multiplies_in_half_precision(name, family, setting, places):
    check_step(read_recipe(family, [*places, *SMALL, f"train.objective={name}"]), setting)


@pytest.mark.parametrize("setting", [ONE, FSDP], ids=["one", "fsdp"])
def test_a_published_encoder_continues_as_fast(setting, places, tmp_path):
    """With dropout on attention, as it was published, and in the precision that the recipe does not name."""
    text = Path(places[0].removeprefix("data.corpus="))
    init = save_small_model(tmp_path / "init", text, vocab_size=64, positions=128)
    recipe = read_recipe("continued", [*places, f"model.init={init}", "tokenizer.extend=9", "run.dir=none"])
    assert recipe.train.precision == "auto"
    model = check_step(recipe, setting._replace(precision="auto"))
    assert model.config.vocab_size > 64, "with tokens of its own field"
    assert model.config.attention_probs_dropout_prob > 0


def check_step(recipe: Recipe, setting: Setting) -> Any:
    """The laws of a step hold; what was trained."""
    data = open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run)
    objective = OBJECTIVES[recipe.train.objective](recipe, data)
    plan = Plan(len(data.train), recipe.train.global_batch, recipe.run.seed)
    ((_, (batch, *_)),) = load_steps(data.train, plan, objective.make_collator(100), range(1), micro_batch=8)
    model = build_model(recipe, data, objective, outline=True)
    num_layers = len(layers_of(model))
    shape = Shape(tuple(batch.cu_seqlens.diff().tolist()), len(batch.target_ids))
    check(rehearse(model, recipe.optim, shape, setting, lambda _: batch.map(torch.empty_like)), setting, num_layers)
    return model
