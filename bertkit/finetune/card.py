"""A fine-tuned model enters; what stands beside it in its folder leaves: settings for tagging, and a model card."""

from pathlib import Path
from typing import Any

import bertkit
from bertkit.config.finetune import FinetuneRecipe
from bertkit.finetune.data import Labeled
from bertkit.run.export import framed_card
from data_pipelines import durable

SETTINGS = "tagging.json"
"""How the training data split words, and how long its windows were: text must be tagged as it was learnt."""


def tagger_settings(recipe: FinetuneRecipe, labeled: Labeled, max_length: int) -> dict[str, bytes]:
    values = {
        "format": 1,
        "max_length": max_length,
        "split": None if labeled.rule is None else labeled.rule.to_json(),
    }
    return {SETTINGS: durable.json_bytes(values)}


def tagger_card(recipe: FinetuneRecipe, labeled: Labeled, found: dict[str, Any]) -> str:
    """What the model was trained on, and how well it does."""
    pipeline = "token-classification" if recipe.task == "tagging" else "text-classification"
    origin = f"`{Path(recipe.model.init).name}`" if recipe.model.init else "an encoder with random weights"
    names = ", ".join(Path(source).name for source in recipe.data.train)
    lines = [
        f"Fine-tuned from {origin} with [bertkit](https://pypi.org/project/bertkit/) {bertkit.__version__} on "
        f"{len(labeled.train):,} examples of {names}; {len(labeled.labels)} labels.",
        "",
        *_score_lines(found),
        "## Use",
        "",
        "```python",
        "import bertkit",
        "",
        'print(bertkit.Tagger.load("PATH/TO/THIS/FOLDER").tag("Some text."))',
        "```",
        "",
        f'It opens in transformers too: `pipeline("{pipeline}", model="PATH/TO/THIS/FOLDER")`.',
    ]
    return framed_card(recipe, pipeline, lines)


def _score_lines(found: dict[str, Any]) -> list[str]:
    parts = {part: found[part] for part in ("dev", "test") if part in found}
    if not parts:
        return []
    lines = ["## Scores", ""]
    if all("f1" in scores for scores in parts.values()):
        lines += ["| data | reading | precision | recall | F1 |", "| --- | --- | ---: | ---: | ---: |"]
        for part, scores in parts.items():
            for reading, row in (("conlleval", scores), ("strict", scores["strict"])):
                lines.append(f"| {part} | {reading} | {row['precision']:.2%} | {row['recall']:.2%} | {row['f1']:.2%} |")
    else:
        lines += ["| data | accuracy | macro-F1 |", "| --- | ---: | ---: |"]
        lines += [f"| {part} | {row['accuracy']:.2%} | {row['macro_f1']:.2%} |" for part, row in parts.items()]
    return [*lines, ""]
