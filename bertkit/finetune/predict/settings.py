"""What an export remembers for prediction: its task, its longest window, and what the task must know of its data."""

import json
from pathlib import Path
from typing import Any

from bertkit.config.finetune import LabeledSection
from bertkit.finetune.answers import SPAN_POWER
from bertkit.finetune.tasks import TASKS
from bertkit.finetune.tasks.task import Task
from bertkit.finetune.windows import RowForm
from data_pipelines import durable
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.text.lines import suffix_of

SETTINGS = "tagging.json"
"""The file next to the model."""
PIECES = "pieces"
"""The setting of models that answer for a word with all its subwords; its value is "mean"."""
_HIGHEST_POWER = 100
"""Far above any that is fitted."""
_COLUMNS = ("word_column", "pair_column", "tag_column", "feature_column", "columns", "label_separator")


def settings_bytes(task: str, form: RowForm, settings: dict[str, Any]) -> bytes:
    windows = {"max_length": form.max_length, "stride": form.stride, **({PIECES: "mean"} if form.all_subwords else {})}
    return durable.json_bytes({"format": 1, "task": task, **windows, **settings})


def files_settings(config: LabeledSection) -> dict[str, Any]:
    """Where the training files have their words and tags, and what kind of files they are: files to tag are read
    alike."""
    values = {key: getattr(config, key) for key in _COLUMNS}
    values = {key: value for key, value in values.items() if value != getattr(TaggedConfig(), key)}
    suffixes = sorted({suffix_of(source) for source in config.train if Path(source).is_file()})
    return {"files": {key: value for key, value in {**values, "suffixes": suffixes}.items() if value}}


def read_config(settings: dict[str, Any]) -> TaggedConfig:
    """How files to tag are read."""
    found = settings.get("files", {})
    return TaggedConfig(**{key: found[key] for key in _COLUMNS if key in found})


def read_settings(folder: Path) -> dict[str, Any]:
    """What the folder remembers: nothing in folders of other makers."""
    file = folder / SETTINGS
    if not file.is_file():
        return {}
    try:
        values = json.loads(file.read_bytes())
        numbers = {"max_length": int(values["max_length"]), "stride": int(values.get("stride", 0))}
        power = values.get(SPAN_POWER, 1.0)
        if not isinstance(power, int | float) or not 0 < power <= _HIGHEST_POWER:
            raise ValueError(f"{SPAN_POWER} must be a number in (0, {_HIGHEST_POWER}], got {power!r}")
        return {**values, **numbers, "task": str(values.get("task", ""))}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} was not written by bertkit, or was changed: {error!r}") from None


def tasks_by_head(settings: dict[str, Any], folder: Path) -> dict[str, Task]:
    """The task that the folder names; where it names none, the first task for each kind of head."""
    named = settings.get("task")
    if named and named not in TASKS:
        raise ValueError(f"{folder} has the unknown task {named!r}; if a plugin defines it, add --plugin MODULE")
    tasks: dict[str, Task] = {}
    for name in [named] if named else TASKS:
        # A head without labels is that of pretraining, which alone does no task.
        if named or TASKS[name].head != "masked-lm":
            tasks.setdefault(TASKS[name].head, TASKS[name])
    return tasks


def task_of(model: Any, settings: dict[str, Any], tasks: dict[str, Task]) -> Task:
    """The task of a model: for a folder that names none, the one of its config's problem_type. A single output
    without a name is a number, as in transformers."""
    problem = model.config.carried.get("problem_type")
    if problem is None and model.kind == "classifier" and len(model.labels) == 1:
        problem = "regression"
    rows = [] if settings.get("task") else [TASKS[name] for name in TASKS]
    fitting = [
        task for task in rows if problem is not None and task.problem_type == problem and task.head == model.kind
    ]
    return next(iter(fitting), tasks[model.kind])
