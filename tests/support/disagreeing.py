"""Two ranks that meet again and again, each time with another key of their recipe different.

`main` prints a JSON object: for every key that ranks must have alike, what each of them was told.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertkit.config.fields import Entry, entries
from bertkit.config.finetune import read_finetune_recipe
from bertkit.config.recipe import flat_values, read_recipe
from bertkit.config.sections import BUDGETS
from bertkit.run.ranks import agree_on, start_accelerator
from bertkit.run.start import OF_EACH_RANK, check_same_start

PLACES = {"finetune": ["run.dir=run", "data.train=x"], "pretrain": ["run.dir=run", "data.corpus=x", "train.steps=60"]}
ALL_BUDGETS = {f"train.{budget}" for budget in BUDGETS}
BESIDE = {
    "tokenizer.extend": ["tokenizer.path=x"],
    "data.content": ["tokenizer.path=x"],
    "data.slots": ["data.order=parallel"],
}
"""What a key needs beside it to have any other value."""
VALUES = {
    "data.encoding": ["latin-1"],
    "model.architecture": ["modernbert", "bert"],
    "model.layer_types": [f"[{','.join(['full_attention'] * layers)}]" for layers in range(1, 13)],
    "task": ["pos"],
    "train.first_batch": ["4"],
}
"""Of keys whose values cannot be guessed."""


def main(names: list[str]) -> None:
    accelerator = start_accelerator(Path("run"), "fp32", [])
    told = {}
    for name in names:
        read, changes = (
            (read_finetune_recipe, PLACES["finetune"]) if name == "ner" else (read_recipe, PLACES["pretrain"])
        )
        for entry in to_agree_on(read(name, changes)):
            beside = [*changes, *BESIDE.get(entry.key, [])]
            recipe = read(name, beside)
            if accelerator.process_index:
                recipe = next(others(read, name, beside, entry, flat_values(recipe)))
            told[f"{name} {entry.key}"] = refusal(accelerator, recipe)
    both = [agree_on(accelerator, told, rank) for rank in range(accelerator.num_processes)]
    if accelerator.is_main_process:
        print(json.dumps(both))


def to_agree_on(recipe: Any) -> list[Entry]:
    """Every key of the recipe, but those that are each rank's own."""
    keys = {*flat_values(recipe), *ALL_BUDGETS} - OF_EACH_RANK
    return list({entry.key: entry for entry in entries(type(recipe)) if entry.key in keys}.values())


def others(read: Any, name: str, changes: list[str], entry: Entry, before: dict[str, Any]) -> Iterator[Any]:
    """The recipe with other values of this key, as far as a recipe takes them. It has one budget."""
    if entry.key in ALL_BUDGETS:
        changes = [change for change in changes if not change.startswith("train.steps")]
    for value in candidates(entry, before.get(entry.key)):
        try:
            recipe = read(name, [*changes, f"{entry.key}={value}"])
        except ValueError:
            continue
        if flat_values(recipe).get(entry.key) != before.get(entry.key):
            yield recipe


def candidates(entry: Entry, value: Any) -> Iterator[str]:
    yield from VALUES.get(entry.key, [])
    yield from map(str, entry.choices)
    if isinstance(value, bool):
        yield str(not value).lower()
    elif isinstance(value, (int, float)):
        yield from (f"{value + 1}", f"{2 * value}", f"{value // 2}", f"{value / 2}", "0.3", "0.5")
    elif isinstance(value, list):
        yield from ("[0.5,0.6]", "[1,2]", "[x,y]")
    yield from ("3", "0.3", "true", "x", "[x]")


def refusal(accelerator: Any, recipe: Any) -> str:
    try:
        check_same_start(accelerator, recipe, dict)
    except ValueError as error:
        return str(error)
    return ""
