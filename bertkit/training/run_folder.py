"""What a run folder says of its run: recipe, text, tokenizer, number of steps. A resume must agree with it."""

import json
from pathlib import Path
from typing import Any

from bertkit.recipe import Recipe, forbidden_changes, to_yaml
from bertkit.training import durable

RECIPE, FACTS, METRICS = "recipe.yaml", "run.json", "metrics.jsonl"
CHECKPOINTS, EXPORT = "checkpoints", "export"


def check_recipe(folder: Path, recipe: Recipe) -> None:
    """Refuse a folder that belongs to another recipe, or to something else; a new or empty one is fine."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"run.dir={folder} is a file; choose another folder")
    if not (folder / RECIPE).is_file():
        others = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if others:
            raise ValueError(f"run.dir={folder} holds other things ({others[0]}) and no run; choose an empty folder")
        return
    changes = forbidden_changes((folder / RECIPE).read_text(encoding="utf-8"), recipe)
    if changes:
        raise ValueError(
            f"{folder} holds a run of another recipe ({'; '.join(changes)}); "
            "run with the old values to go on, or choose another run.dir"
        )


def write_recipe(folder: Path, recipe: Recipe) -> None:
    durable.replace_file(folder / RECIPE, to_yaml(recipe).encode())


def read_facts(folder: Path) -> dict[str, Any] | None:
    """What was fixed when the run began; None before that."""
    path = folder / FACTS
    if not path.is_file():
        return None
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        raise ValueError(f"{path} is damaged; restore it from a backup, or choose another run.dir") from None


def check_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Refuse to go on with another text or tokenizer than the run began with."""
    before = read_facts(folder) or {}
    names = {"corpus": "the text of data.corpus", "tokenizer": "the tokenizer", "rows": "the prepared rows"}
    for key, name in names.items():
        if key in before and before[key] != facts[key]:
            raise ValueError(
                f"{name} changed since {folder} began ({before[key][:12]} -> {facts[key][:12]}); "
                "restore it to go on, or choose another run.dir"
            )


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    durable.replace_file(folder / FACTS, durable.json_bytes(facts))
