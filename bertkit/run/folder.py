"""What a run folder says of its run: recipe, text, tokenizer, number of steps. A resume must agree with it."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertkit.config.recipe import forbidden_changes, to_yaml
from data_pipelines import durable

RECIPE, FACTS, METRICS = "recipe.yaml", "run.json", "metrics.jsonl"
CHECKPOINTS, EXPORT = "checkpoints", "export"
LOCK = ".lock"
SAVED = ".saved"
"""Lies in the folder once there was a checkpoint, and not among the checkpoints, whose folder may be lost as well."""
_HIDDEN = re.compile(r"\.lock|\.saved|\.tokenizer\.lock|\..+\.tmp|\.(tmp|old)-.+")
"""What a run may leave in its folder, even a killed one."""


def num_launched() -> int:
    """How many processes the launcher started, known before they are connected."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check_recipe(folder: Path, recipe: Any) -> None:
    """Refuse a folder that belongs to another recipe, or to something else; a new or empty one is fine."""
    check_no_file("run.dir", folder)
    if not folder.exists():
        return
    found = sorted(path.name for path in folder.iterdir() if not _HIDDEN.fullmatch(path.name))
    # The lock is the first thing that a run makes; run.json marks a run that was copied without it.
    is_run = any((folder / name).exists() for name in (LOCK, FACTS))
    if RECIPE in found and not is_run and (folder / RECIPE).read_bytes() != to_yaml(recipe).encode():
        raise ValueError(f"{folder / RECIPE} does not belong to a run and would be overwritten; choose another run.dir")
    # A start that failed, say for an unknown name of the hub, leaves a recipe and an empty folder of checkpoints. So
    # does the first rank before a later one comes here; whether they have the same recipe is asked when they connect.
    begun = bool(set(found) - {RECIPE, CHECKPOINTS}) or any((folder / CHECKPOINTS).glob("[!.]*"))
    if not found or (RECIPE in found and not begun):
        return
    if RECIPE not in found or not is_run:
        raise ValueError(f"run.dir={folder} holds other files ({found[0]}) and no run; choose an empty folder")
    changes = forbidden_changes(folder / RECIPE, recipe)
    if changes:
        raise ValueError(
            f"{folder} holds a run of another recipe ({'; '.join(changes)}); "
            "run with the old values to resume, or choose another run.dir"
        )


def check_no_file(key: str, folder: Path) -> None:
    """Refuse a folder that is a file, or lies in one."""
    file = next((path for path in (folder, *folder.parents) if path.is_file()), None)
    if file is not None:
        which = "" if file == folder else f": {file}"
        raise ValueError(f"{key}={folder}{which} is a file; choose another folder")


def make_places(folder: Path, restart: bool = False) -> None:
    """Make the folder of checkpoints, and refuse before training what could not be written then. A run whose
    checkpoints are gone starts over only if `restart` says so."""
    checkpoints, metrics = folder / CHECKPOINTS, folder / METRICS
    for path in (checkpoints, folder / EXPORT, metrics):
        if path.is_symlink():
            raise ValueError(
                f"{path} is a link; a run writes only inside its folder, so replace the link by its target"
            )
        if path.exists() and path.is_dir() != (path != metrics):
            raise ValueError(
                f"{path} is a {'file' if path != metrics else 'folder'}, but a run needs the other; move it away"
            )
    kept = [path for path in checkpoints.glob("step-*") if path.is_dir() and not path.is_symlink()]
    was_saved = (folder / SAVED).exists() or (metrics.is_file() and not checkpoints.exists())
    if was_saved and not kept and not restart:
        raise ValueError(
            f"{folder} has trained before, but the checkpoints in {checkpoints} are gone (links do not count); "
            "restore them from a backup, or start over with run.restart=true or in another run.dir"
        )
    checkpoints.mkdir(exist_ok=True)
    if not kept:
        (folder / SAVED).unlink(missing_ok=True)
    probe = checkpoints / ".writable"
    durable.replace_file(probe, b"")
    probe.unlink()


def write_recipe(folder: Path, recipe: Any) -> None:
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


def read_metrics(folder: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines of metrics.jsonl and what they say, but for a line that a kill cut short."""
    path = folder / METRICS
    for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if line.endswith(b"\n") and isinstance(record, dict) and isinstance(record.get("step"), int):
            yield line, record


def check_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Refuse to resume with another text or tokenizer than the run began with."""
    before = read_facts(folder) or {}
    names = {
        "corpus": "the text of data.corpus",
        "labeled": "the labeled data",
        "tokenizer": "the tokenizer",
        "rows": "the prepared rows" if "corpus" in facts else "what data.prepared holds",
        "init": "the model of model.init",
        "folds": "the number of folds",
    }
    for key, name in names.items():
        if key in before and key in facts and before[key] != facts[key]:
            raise ValueError(
                f"{name} changed since {folder} began ({before[key][:12]} -> {facts[key][:12]}); "
                "restore it to resume, or choose another run.dir"
            )


def check_batch(global_batch: int, first_batch: int | None = None) -> None:
    """Refuse a batch that the processes cannot share evenly."""
    num_processes = num_launched()
    for batch in (first_batch or global_batch, global_batch):
        if batch % num_processes:
            raise ValueError(
                f"a global batch of {batch} rows does not divide over {num_processes} processes; "
                f"make train.global_batch (and train.first_batch) a multiple of {num_processes}"
            )


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    durable.replace_file(folder / FACTS, durable.json_bytes(facts))
