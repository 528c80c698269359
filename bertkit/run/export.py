"""A trained model enters, a Hugging Face folder with a model card leaves, complete or absent."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import bertkit
from bertkit.config.recipe import Recipe, to_yaml
from bertkit.hf import Model
from data_pipelines import durable
from data_pipelines.rows.manifest import read_manifest
from data_pipelines.vocab.tokenizer import Tokenizer


def export_model(
    folder: Path, model: Model, tokenizer: Tokenizer, card: str, beside: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write the folder, with a card and files `beside` the model."""
    with durable.replacing_folder(folder) as unfinished:
        bertkit.save(model, unfinished, tokenizer)
        for name, data in {"README.md": card.encode(), **beside}.items():
            durable.write_file(unfinished / name, data)


def model_card(recipe: Recipe, facts: dict[str, Any], scores: dict[str, Any] | None) -> str:
    """What the model was trained on, for how long, and how well it does."""
    sources = recipe.data.corpus
    if recipe.data.prepared is not None:
        sources = [source["name"] for source in read_manifest(Path(recipe.data.prepared))["identity"]["sources"]]
    names = [Path(source).name for source in sources]
    kind = recipe.model.architecture if recipe.model.init is None else f"went on from {recipe.model.init}"
    lines = [
        f"A masked-language model ({kind}, {facts['parameters']:,} parameters) pretrained with "
        f"[bertkit](https://pypi.org/project/bertkit/) {bertkit.__version__}.",
        "",
        "## Training",
        "",
        f"- Text: {', '.join(names)}",
        f"- Steps: {facts['step']:,} of up to {recipe.train.global_batch} rows of {recipe.data.seq_len} tokens",
        f"- Tokens seen: {facts['tokens']:,} ({facts['epochs']:.2f} times the training text)",
        f"- Training time: {facts['seconds'] / 60:.1f} minutes",
        f"- Masked: {recipe.mask.rate:.0%} of the tokens, unit {recipe.mask.unit}",
        "",
        *_score_lines(scores, recipe.eval.mask_rate),
        "## Use",
        "",
        "```python",
        "from transformers import pipeline",
        "",
        'print(pipeline("fill-mask", model="PATH/TO/THIS/FOLDER")("Some text with a [MASK] in it."))',
        "```",
    ]
    return framed_card(recipe, "fill-mask", lines)


def framed_card(recipe: Any, pipeline: str, lines: list[str]) -> str:
    """A card of these lines: above them what the hub wants to know and a title, below them the recipe."""
    head = ["---", "library_name: transformers", f"pipeline_tag: {pipeline}", f"tags: [bertkit, {pipeline}]", "---"]
    title = f"# {Path(recipe.run.dir).name}"
    below = ["## Recipe", "", "```yaml", to_yaml(recipe).rstrip(), "```", ""]
    return "\n".join([*head, "", title, "", *lines, "", *below])


def _score_lines(scores: dict[str, Any] | None, mask_rate: float) -> list[str]:
    if scores is None:
        return []
    rows = {"all": scores, **scores["buckets"]}
    return [
        "## Scores",
        "",
        f"On held-out text with {mask_rate:.0%} of the tokens masked, always the same ones. "
        f"Perplexity {scores['perplexity']:.2f}.",
        "",
        "| targets | count | loss (nats) | accuracy |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {name.replace('_', ' ')} | {row['targets']:,} | {row['loss']:.3f} | {row['accuracy']:.1%} |"
            for name, row in rows.items()
        ),
        "",
    ]
