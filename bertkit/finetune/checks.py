"""What of a fine-tuning recipe can be seen to fail before anything heavy is imported."""

from collections.abc import Collection
from pathlib import Path

from bertkit.config.fields import check_names
from bertkit.config.finetune import FinetuneRecipe
from bertkit.config.recipe import read_sections
from bertkit.finetune.tasks import TASKS
from bertkit.hf.folder import check_named, is_remote
from bertkit.run.folder import check_batch, check_recipe, num_launched
from bertkit.run.optim import OPTIMIZERS
from data_pipelines.labels.tagged import check_source
from data_pipelines.vocab.segmenters import SEGMENTERS

NAMES: dict[str, Collection[str]] = {"task": TASKS, "optim.name": OPTIMIZERS}
"""Keys whose values are the rows of a table."""


def check_finetune(recipe: FinetuneRecipe) -> None:
    """Refuse what must fail, without reading the data or the model."""
    check_names(recipe, NAMES)
    if recipe.data.segmenter:
        check_names(recipe, {"data.segmenter": SEGMENTERS})
        if TASKS[recipe.task].unit != "word":
            raise ValueError(f"data.segmenter splits text into words, and task={recipe.task} reads whole texts")
    check_batch(recipe.train.global_batch)
    check_recipe(Path(recipe.run.dir), recipe)
    for source in (*recipe.data.train, *recipe.data.dev, *recipe.data.test):
        check_source(source)
    if recipe.train.token_dropout and TASKS[recipe.task].head == "masked-lm":
        raise ValueError(f"train.token_dropout hides what task={recipe.task} must copy; it is for tasks with labels")
    if recipe.train.adapts and not recipe.model.init:
        raise ValueError("train.adapt_steps and train.adapt_minutes adapt an encoder; name it in model.init")
    if recipe.train.adapts and num_launched() > 1:
        raise ValueError(
            f"train.adapt_steps adapts in one process, got {num_launched()}; adapt first: bertkit pretrain continued"
        )
    if recipe.model.init:
        check_named(recipe.model.init)
    elif Path(recipe.model.like).is_dir():
        check_named(recipe.model.like)
    elif not is_remote(recipe.model.like):
        read_sections(recipe.model.like, "model", "tokenizer")


def check_find_errors(recipe: FinetuneRecipe, folds: int) -> None:
    """Refuse what cannot be split into folds, before anything is read."""
    if TASKS[recipe.task].doubts is None:
        able = ", ".join(name for name in TASKS if TASKS[name].doubts is not None)
        raise ValueError(f"--find-errors judges labels, and task={recipe.task} has none; use it with {able}")
    if len(recipe.run.seeds) != 1:
        raise ValueError(f"--find-errors splits and trains with one seed, got run.seeds={recipe.run.seeds}")
    if folds < 2:
        raise ValueError(f"--folds must be at least 2, got {folds}")
