"""What can be seen to fail in a pretraining recipe before anything heavy is imported or anything is written."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bertkit.config.fields import check_names, part
from bertkit.config.recipe import Recipe
from bertkit.evaluate.minimal_pairs import find_pair_files
from bertkit.hf.folder import check_named, is_remote
from bertkit.pretrain.objectives import OBJECTIVES
from bertkit.run.folder import check_batch, check_no_file, check_recipe
from bertkit.run.optim import OPTIMIZERS
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import find_sources
from data_pipelines.vocab.tokenizer_file import find_tokenizer

NAMES: dict[str, Collection[str]] = {"train.objective": OBJECTIVES, "optim.name": OPTIMIZERS}
"""Keys whose values are the rows of a table."""


def check_pretraining(recipe: Recipe) -> None:
    """Refuse a recipe that cannot start."""
    check_names(recipe, NAMES)
    check_batch(recipe.train.global_batch, recipe.train.first_batch)
    check_recipe(Path(recipe.run.dir), recipe)
    if recipe.data.prepared is None:
        find_sources(part(recipe.data, CorpusConfig))
    if recipe.data.cache_dir is not None:
        check_no_file("data.cache_dir", Path(recipe.data.cache_dir))
    if recipe.eval.pairs:
        find_pair_files(recipe.eval.pairs)
    if recipe.model.old_domain:
        find_sources(CorpusConfig(corpus=list(recipe.model.old_domain)))
    _check_given("tokenizer.path", recipe.tokenizer.path, find_tokenizer)
    _check_given("model.init", recipe.model.init, check_named)


def _check_given(key: str, path: str | None, check: Callable[[Path], Any]) -> None:
    if path is None or is_remote(path):
        return
    if not Path(path).exists():
        raise ValueError(f"{key}={path}: there is no such folder; for the Hugging Face hub write hf:OWNER/NAME")
    check(Path(path))
