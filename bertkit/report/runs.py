"""Read what a run recorded in its folder, whatever state the folder is in."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]

_FILES = ("metrics.jsonl", "recipe.yaml", "run.json", "scores.json")


@dataclass
class Run:
    name: str
    """The folder's name, with as much of its path as distinguishes it from the other runs."""
    folder: Path
    recipe: dict[str, Any] = field(default_factory=dict)
    """The resolved recipe, flat: section.key to value."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What was fixed when the run began, such as total_steps."""
    records: dict[str, list[Record]] = field(default_factory=dict)
    """The lines of metrics.jsonl by their kind (train, eval, advice, ...), in the order of their steps."""
    scores: dict[str, Any] | None = None
    """A tagger's scores.json."""
    notes: list[str] = field(default_factory=list)
    """What could not be read."""

    @property
    def task(self) -> str:
        """What the run learns; numbers of different tasks do not compare."""
        known = self.recipe.get("task")
        if isinstance(known, str):
            return known
        return "pretraining" if self.scores is None else "tagging"

    def of_kind(self, kind: str) -> list[Record]:
        return self.records.get(kind, [])

    def last(self, kind: str, key: str) -> float | None:
        """The newest number of this name, if there is any."""
        return next(
            (value for record in reversed(self.of_kind(kind)) if (value := number(record, key)) is not None), None
        )


def read_runs(folders: list[Path]) -> list[Run]:
    """Every run, each under its own name."""
    unique = list(dict.fromkeys(folder.resolve() for folder in folders))
    return [_read_run(folder, name) for folder, name in zip(unique, _names(unique), strict=True)]


def number(record: Record, key: str) -> float | None:
    """A finite number, or nothing."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def mapping(value: Any) -> dict[str, Any]:
    """A group of a file that others may have written; empty if it is none."""
    return value if isinstance(value, dict) else {}


def _read_run(folder: Path, name: str) -> Run:
    from bertkit.config.recipe import flat  # here, because a help text needs no YAML

    if not any((folder / file).is_file() for file in _FILES):
        what = "is no folder" if not folder.is_dir() else f"holds none of {', '.join(_FILES)}"
        raise ValueError(f"{folder} {what}; name the folder of a run, the run.dir of its recipe")
    run = Run(name, folder)
    run.recipe = flat(_read(run, "recipe.yaml", _parse_yaml) or {})
    run.facts = _read(run, "run.json", json.loads) or {}
    run.scores = _read(run, "scores.json", json.loads)
    _read_metrics(run, _metrics_folder(run))
    return run


def _metrics_folder(run: Run) -> Path:
    """The run's own folder; of a run with a folder for each seed that of the best, or of the first so far."""
    if (run.folder / "metrics.jsonl").is_file():
        return run.folder
    best = (run.scores or {}).get("best_seed")
    seeds = [run.folder / f"seed-{best}", *sorted(run.folder.glob("seed-*"))]
    found = next((seed for seed in seeds if (seed / "metrics.jsonl").is_file()), None)
    if found is not None:
        run.notes.append(f"The curves are those of {found.name}.")
    return found or run.folder


def _read(run: Run, file: str, parse) -> dict[str, Any] | None:
    path = run.folder / file
    if not path.is_file():
        return None
    try:
        values = parse(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        run.notes.append(f"{file} is left out, because it cannot be read: {' '.join(str(error).split())[:200]}")
        return None
    if not isinstance(values, dict):
        run.notes.append(f"{file} is left out, because it holds a {type(values).__name__} and not an object")
        return None
    return values


def _parse_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _read_metrics(run: Run, folder: Path) -> None:
    path = folder / "metrics.jsonl"
    damaged = 0
    if path.is_file():
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    record = json.loads(line)
                    # What pretraining calls held out, labeled data calls dev.
                    kind = "eval" if record["kind"] == "dev" else str(record["kind"])
                    run.records.setdefault(kind, []).append({**record, "step": int(record["step"])})
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                    damaged += bool(line.strip())
    for records in run.records.values():
        records.sort(key=lambda record: record["step"])
    if damaged:
        lines = "1 line" if damaged == 1 else f"{damaged} lines"
        run.notes.append(f"{lines} of metrics.jsonl could not be read; a run that was killed may leave such a line")


def _names(folders: list[Path]) -> list[str]:
    """The shortest ends of the paths that distinguish the folders."""
    for depth in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    raise AssertionError("the folders are distinct")
