"""Fine-tuning and evaluation as a GPU would run them."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from gpu_step import DDP, FSDP, ONE, check, needs_fake_cuda, outline, recipe_of

from bertkit.config.finetune import read_finetune_recipe
from bertkit.config.recipe import shipped_recipes
from bertkit.evaluate import masked_loss
from bertkit.finetune.model_with_loss import ModelWithLoss, layer_lr_scale
from bertkit.finetune.tasks import TASKS
from bertkit.model.heads import HEADS
from bertkit.plan.ranks import fake_parameters, fake_ranks
from bertkit.plan.rehearsal import Shape, even_shape, fake_batch, rehearse
from bertkit.plan.watch import Watch
from bertkit.run import ranks
from bertkit.run.optim import build_optimizers
from data_pipelines.masks.batch import PackedBatch

pytestmark = needs_fake_cuda
SETTINGS = {"one": ONE, "ddp": DDP, "fsdp": FSDP}
LABELS = ["O", "B-PER", "I-PER"]
RECIPES = sorted(path.stem for path in (shipped_recipes()["bert-base"].parent / "finetune").glob("*.yaml"))
CASES = [
    *((name, "bert-bytes" if name == "inflection" else "bert-base", "one") for name in RECIPES),
    *((name, "modernbert-base", "fsdp") for name in ("ner", "text-classification", "rewrite")),
    ("ner", "bert-base", "ddp"),
]


def test_every_task_has_a_recipe():
    assert {finetune_recipe(name).task for name in RECIPES} == {*TASKS}
    assert finetune_recipe("inflection").model.like == "bert-bytes"


def finetune_recipe(name):
    return read_finetune_recipe(name, ["data.train=none.tsv", "data.dev=none.tsv", "run.dir=none"])


@pytest.mark.parametrize(("name", "encoder", "setting"), CASES)
def test_fine_tuning_waits_once_and_multiplies_in_half_precision(name, encoder, setting):
    """By default: with dropout on attention, and without a word about precision."""
    recipe = finetune_recipe(name)
    task, lengths = TASKS[recipe.task], (17, 40, 64, 5)
    dropout = {"attention_dropout" if encoder == "modernbert-base" else "attention_probs_dropout_prob": 0.1}
    bare = outline(recipe_of(encoder), **dropout).encoder
    head = HEADS[task.head]
    model = ModelWithLoss(head(bare, LABELS) if head.takes_labels else head(bare), task)
    shape = Shape(lengths, len(lengths) if head.judges_sequences else 60)
    assert recipe.train.precision == "auto"
    setting = SETTINGS[setting]._replace(precision="auto")
    lr_scale = layer_lr_scale(model.model, recipe.optim.layer_decay)
    step = rehearse(model, recipe.optim, shape, setting, partial(labeled_batch, task), lr_scale)
    check(step, setting, len(bare.layers))


def labeled_batch(task, shape: Shape) -> PackedBatch:
    """A fake batch of what the task asks for: a number for each label, two texts, or a text to be written."""
    batch = fake_batch(shape)
    if task in (TASKS["multi-label"], TASKS["regression"], TASKS["similarity"]):
        batch = replace(batch, target_ids=torch.empty(shape.num_targets, len(LABELS)))
    if task in (TASKS["pairs"], TASKS["similarity"]):
        batch = replace(batch, token_type_ids=torch.empty_like(batch.input_ids))
    if task is TASKS["rewrite"]:
        batch = replace(batch, prefixes=torch.empty(len(shape.lengths), dtype=torch.int32))
    return batch


@pytest.mark.parametrize("setting", [ONE, FSDP], ids=["one", "fsdp"])
@pytest.mark.parametrize("name", ["bert-base", "modernbert-base"])
def test_an_evaluation_waits_once_whatever_its_length(name, setting, monkeypatch):
    recipe, shape = recipe_of(name), even_shape(64, 4, 0.15)
    model = outline(recipe)
    monkeypatch.setattr(masked_loss, "scores_of", lambda tally: {"read on": tally.device.type})
    monkeypatch.setattr(ranks, "_any_rank", lambda *here: here)
    with fake_ranks(setting.num_gpus, setting.launch_file, "bf16") as accelerator:
        fake_parameters(model, accelerator.device)
        trainable = ranks.wrap(accelerator, model, partial(build_optimizers, config=recipe.optim))
        frequent_V = torch.empty(model.config.vocab_size, dtype=torch.bool, device=accelerator.device)
        with Watch(shape.lengths) as watch, ranks.evaluating(trainable) as evaluation:
            assert (evaluation.rank, evaluation.world_size) == (0, setting.num_gpus), "ranks share the rows"
            batches = [fake_batch(shape) for _ in range(3)]
            logits, total = evaluation.target_logits, evaluation.sum_over_ranks
            found = masked_loss.score_batches(logits, batches, frequent_V, accelerator.device, total)
    assert found == {"read on": "cpu"}
    assert not watch.mixed_products
    assert not watch.waits
    assert [direction for direction, _ in watch.copies].count("from the GPU") == 1
