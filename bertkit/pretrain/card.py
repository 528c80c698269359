"""The model card of a pretrained model: what it was trained on, for how long, and how well it does."""

from pathlib import Path
from typing import Any

from bertkit import __version__
from bertkit.config.recipe import Recipe, to_yaml
from bertkit.hf import Model
from bertkit.hf.card import framed_card
from bertkit.run.state import LoopState
from data_pipelines.rows.manifest import read_manifest

_USES = {
    "masked-lm": ("A masked-language model", "fill-mask", "Some text with a [MASK] in it."),
    "bare": ("An encoder", "feature-extraction", "Some text."),
}
"""By the head that a model has: what it is, the pipeline of transformers that uses it, and a text to try."""


def model_card(
    recipe: Recipe, model: Model, summary: str, state: LoopState, epochs: float, scores: dict[str, Any] | None
) -> str:
    """`summary` says what was learned, `epochs` how often the training text was seen."""
    sources = recipe.data.corpus
    if recipe.data.prepared is not None:
        sources = [source["name"] for source in read_manifest(recipe.data.prepared)["identity"]["sources"]]
    names = [Path(source).name for source in sources]
    origin = recipe.model.architecture if recipe.model.init is None else f"continued from {recipe.model.init}"
    num_parameters = sum(param.numel() for param in model.parameters())
    noun, pipeline, example = _USES.get(model.kind, _USES["bare"])
    lines = [
        f"{noun} ({origin}, {num_parameters:,} parameters) pretrained with "
        f"[bertkit](https://pypi.org/project/bertkit/) {__version__}.",
        "",
        "## Training",
        "",
        f"- Text: {', '.join(names)}",
        f"- Objective: {recipe.train.objective}, {summary}",
        f"- Steps: {state.step:,} of up to {recipe.train.global_batch} rows of {recipe.data.seq_len} tokens",
        f"- Tokens seen: {state.tokens:,} ({epochs:.2f} times the training text)",
        f"- Training time: {state.seconds / 60:.1f} minutes",
        "",
        *_score_lines(scores, recipe.eval.mask_rate),
        "## Use",
        "",
        "```python",
        "from transformers import pipeline",
        "",
        f'print(pipeline("{pipeline}", model="PATH/TO/THIS/FOLDER")("{example}"))',
        "```",
    ]
    return framed_card(Path(recipe.run.dir).name, pipeline, lines, to_yaml(recipe))


def _score_lines(scores: dict[str, Any] | None, mask_rate: float) -> list[str]:
    if scores is None:
        return []
    if "buckets" not in scores:
        return ["## Scores", "", f"Loss on held-out text: {scores['loss']:.4f}.", ""]
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
