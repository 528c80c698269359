"""What holds for every objective of the table: a batch is the sum of its rows, and a run resumes in the same bits."""

import json
from pathlib import Path

import pytest
import torch
from dying_steps import dies_before, newest_hashes
from grammar import write_corpus

from bertkit import load
from bertkit.config.recipe import read_recipe
from bertkit.model.initialization import fill
from bertkit.pretrain.data import open_data
from bertkit.pretrain.objectives import OBJECTIVES
from bertkit.pretrain.objectives.causal_first import causal_first
from bertkit.pretrain.objectives.causal_masked import causal_masked
from bertkit.pretrain.start_model import build_model
from bertkit.pretrain.train import pretrain
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan

torch.set_num_threads(1)

STEPS = 6
EXPORTED = {"masked-next-token": "bare", "replaced-token-detection": "bare"}
"""The head of what an objective exports, where that is no masked LM."""
SMALL = [
    *("data.seq_len=24", "data.validation_share=0.2", "tokenizer.vocab_size=160", "mask.rate=0.3"),
    *("model.hidden_size=16", "model.num_hidden_layers=4", "model.num_attention_heads=2"),
    *("model.intermediate_size=32", "model.embeddings=random", f"train.steps={STEPS}"),
    *("train.global_batch=8", "train.micro_batch=4", "optim.lr=0.005", "run.save_every=2", "run.log_every=1"),
    *("run.num_workers=0", "eval.every=3", "eval.max_rows=20"),
]
every_objective = pytest.mark.parametrize("name", sorted(OBJECTIVES))
every_family = pytest.mark.parametrize("family", ["bert-mini", "modernbert-mini"])


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("places")
    corpus = write_corpus(folder / "text.txt", count=60)
    return [f"data.corpus={corpus}", f"data.cache_dir={folder / 'cache'}"]


def recipe_of(places, name, folder, family="modernbert-mini", *changes):
    return read_recipe(family, [*places, *SMALL, f"train.objective={name}", f"run.dir={folder}", *changes])


def first_steps(recipe, data, objective, micro_batch=8, steps=1):
    plan = Plan(len(data.train), recipe.train.global_batch, recipe.run.seed)
    collator = objective.make_collator(STEPS)
    return [batches for _, batches in load_steps(data.train, plan, collator, range(steps), micro_batch=micro_batch)]


@every_objective
@every_family
def test_a_pack_has_the_loss_and_the_gradients_of_its_rows_one_by_one(name, family, places, tmp_path):
    recipe = recipe_of(places, name, tmp_path, family)
    data = open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run)
    objective = OBJECTIVES[name](recipe, data)
    model = build_model(recipe, data, objective).double().eval()
    found = []
    for micro_batch in (8, 1):
        torch.manual_seed(0)
        (batches,) = first_steps(recipe, data, objective, micro_batch)
        model.zero_grad()
        losses = [model(batch) for batch in batches]
        sum(losses).backward()
        gradients = {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
        found.append((float(sum(losses).detach()), gradients, sum(len(batch.target_ids) for batch in batches)))
    (loss, gradients, targets), (loss_alone, gradients_alone, targets_alone) = found
    assert targets == targets_alone > 0
    assert loss == pytest.approx(loss_alone, rel=1e-6)
    assert {key for key, p in model.named_parameters() if p.requires_grad} == gradients.keys() == gradients_alone.keys()
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients_alone[key], rtol=1e-5, atol=1e-6, msg=key)


@every_objective
def test_an_outline_knows_the_weights_of_the_model(name, places, tmp_path):
    """What is sharded begins as one."""
    recipe = recipe_of(places, name, tmp_path)
    data = open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run)
    objective = OBJECTIVES[name](recipe, data)
    outline, wanted = (build_model(recipe, data, objective, outline) for outline in (True, False))
    assert all(param.is_meta for param in outline.parameters())
    found = dict(fill(outline).named_parameters())
    assert [key for key, param in wanted.named_parameters() if not torch.equal(param, found[key])] == []


@every_objective
def test_a_run_is_scored_exported_and_resumes_in_the_same_bits(name, places, tmp_path):
    assert pretrain(recipe_of(places, name, tmp_path / "whole")) == 0
    with dies_before(5):
        pretrain(recipe_of(places, name, tmp_path / "run"))
    assert pretrain(recipe_of(places, name, tmp_path / "run", "modernbert-mini", "run.num_workers=1")) == 0
    assert final_state(tmp_path / "run") == final_state(tmp_path / "whole")
    scored = [line["loss"] for line in records(tmp_path / "run") if line["kind"] == "eval"]
    assert len(scored) == 2
    assert scored[1] < scored[0]
    assert load(tmp_path / "run" / "export").kind == EXPORTED.get(name, "masked-lm")


def test_the_first_steps_or_some_rows_of_every_step_are_causal(places, tmp_path):
    recipe = recipe_of(places, "masked-lm", tmp_path, "modernbert-mini", "train.causal_share=0.5")
    data = open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run)
    first, mixed = (first_steps(recipe, data, make(recipe, data), steps=6) for make in (causal_first, causal_masked))
    assert [bool((batch.prefixes == 0).all()) for (batch,) in first] == [True, True, True, False, False, False]
    assert [bool((batch.prefixes == 0).any()) for (batch,) in first] == [True, True, True, False, False, False]
    causal = torch.cat([batch.prefixes == 0 for (batch,) in mixed]).float()
    assert 0.2 < causal.mean() < 0.8


def final_state(folder: Path) -> dict[str, str]:
    step, hashes = newest_hashes(folder)
    assert step == STEPS
    return hashes


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
