"""The model card of a fine-tuned model."""

from pathlib import Path
from typing import Any

from bertkit import __version__
from bertkit.config.finetune import FinetuneRecipe
from bertkit.config.recipe import to_yaml
from bertkit.finetune.score_tables import calibration_lines, shown_columns, shown_score
from bertkit.finetune.tuning_data import TuningData
from bertkit.hf.card import framed_card


def tagger_card(recipe: FinetuneRecipe, data: TuningData, found: dict[str, Any]) -> str:
    """What the model was trained on, and how well it does."""
    origin = f"`{Path(recipe.model.init).name}`" if recipe.model.init else "an encoder with random weights"
    names = ", ".join(Path(source).name for source in recipe.data.train)
    lines = [
        f"Fine-tuned from {origin} with [bertkit](https://pypi.org/project/bertkit/) {__version__} on "
        f"{len(data.labeled.train):,} {data.task.examples} of {names}{_labels(data)}.",
        "",
        *_score_lines(data, found),
        "## Use",
        "",
        "```python",
        "import bertkit",
        "",
        f"print(bertkit.{data.task.example})",
        "```",
        "",
        *_pipeline_lines(data.task.pipeline, "average" if data.form.all_subwords else "first"),
    ]
    return framed_card(Path(recipe.run.dir).name, data.task.pipeline, lines, to_yaml(recipe))


def _pipeline_lines(pipeline: str, strategy: str) -> list[str]:
    """How to open the model in transformers, and where it answers otherwise."""
    call = f'pipeline("{pipeline}", model="PATH/TO/THIS/FOLDER"'
    if pipeline != "token-classification":
        return [f"It opens in transformers too: `{call})`."]
    return [
        f'It opens in transformers too: `{call}, aggregation_strategy="{strategy}")`.',
        f"That gives {'nearly ' * (strategy == 'average')}the same spans wherever both take the same for a word.",
        "bertkit splits text as the training data",
        "was, which may separate contractions such as `don't`; the pipeline goes by the tokenizer, or by spaces where",
        "that has no `##`. Texts longer than the model, and tags that form no legal spans, only bertkit mends.",
    ]


def _labels(data: TuningData) -> str:
    return f"; {len(data.labeled.labels)} labels" if data.labeled.labels else ""


def _score_lines(data: TuningData, found: dict[str, Any]) -> list[str]:
    parts = {part: found[part] for part in ("dev", "test") if part in found}
    if not parts:
        return []
    columns = shown_columns(data.task, next(iter(parts.values())))
    head = ["data", *(column.title for column in columns)]
    rows = [[part, *(shown_score(scores, column) for column in columns)] for part, scores in parts.items()]
    confidence = [f"{line[0].upper()}{line[1:]}.\n" for part in parts for line in calibration_lines(found, part)]
    table = [head, ["---", *["---:"] * len(columns)], *rows]
    return ["## Scores", "", *(f"| {' | '.join(cells)} |" for cells in table), "", *confidence]
