"""The frame of a model card: metadata for the hub above it, the recipe below it."""


def framed_card(title: str, pipeline: str, lines: list[str], recipe: str) -> str:
    """A card of these lines, for a model that this pipeline of transformers uses; `recipe` is YAML."""
    head = ["---", "library_name: transformers", f"pipeline_tag: {pipeline}", f"tags: [bertkit, {pipeline}]", "---"]
    below = ["## Recipe", "", "```yaml", recipe.rstrip(), "```", ""]
    return "\n".join([*head, "", f"# {title}", "", *lines, "", *below])
