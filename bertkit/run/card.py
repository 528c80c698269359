"""The frame of a model card: what the hub wants to know above it, the recipe below it."""

from pathlib import Path
from typing import Any

from bertkit.config.recipe import to_yaml


def framed_card(recipe: Any, pipeline: str, lines: list[str]) -> str:
    """A card of these lines, for a model that this pipeline of transformers uses."""
    head = ["---", "library_name: transformers", f"pipeline_tag: {pipeline}", f"tags: [bertkit, {pipeline}]", "---"]
    title = f"# {Path(recipe.run.dir).name}"
    below = ["## Recipe", "", "```yaml", to_yaml(recipe).rstrip(), "```", ""]
    return "\n".join([*head, "", title, "", *lines, "", *below])
