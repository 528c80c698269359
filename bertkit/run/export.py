"""A trained model enters, a Hugging Face folder with a model card leaves, complete or absent."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import bertkit
from bertkit.config.recipe import to_yaml
from bertkit.hf import Model
from data_pipelines import durable
from data_pipelines.vocab.tokenizer import Tokenizer


def export_model(
    folder: Path, model: Model, tokenizer: Tokenizer, card: str, beside: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write the folder, with a card and files `beside` the model."""
    with durable.replacing_folder(folder) as unfinished:
        bertkit.save(model, unfinished, tokenizer)
        for name, data in {"README.md": card.encode(), **beside}.items():
            durable.write_file(unfinished / name, data)


def framed_card(recipe: Any, pipeline: str, lines: list[str]) -> str:
    """A card of these lines: above them what the hub wants to know and a title, below them the recipe."""
    head = ["---", "library_name: transformers", f"pipeline_tag: {pipeline}", f"tags: [bertkit, {pipeline}]", "---"]
    title = f"# {Path(recipe.run.dir).name}"
    below = ["## Recipe", "", "```yaml", to_yaml(recipe).rstrip(), "```", ""]
    return "\n".join([*head, "", title, "", *lines, "", *below])
