"""Arms × seeds of one recipe, trained one after the other and compared in pairs.

Rows, masks, order and initial weights are functions of the seed, so two arms with one seed differ in nothing but what
the arms say: their differences are taken seed by seed. Started again, an ablation resumes where it stopped.
"""

import itertools
import math
import re
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from bertkit.config.fields import entries
from bertkit.config.recipe import Recipe, read_recipe
from bertkit.config.sections import BUDGETS
from bertkit.pretrain.checks import check_pretraining
from bertkit.run.folder import EXPORT, check_no_file, read_facts, read_metrics
from data_pipelines import durable

SCORES = {"loss": ("eval", "loss"), "accuracy": ("eval", "accuracy"), "pairs": ("pairs", "accuracy")}
"""What is compared, and where metrics.jsonl holds it: on held-out rows, and on the minimal pairs of eval.pairs."""
PAGE = "ablation.html"
_DECIDES = "loss"
_MASKED = "masked tokens"
"""What a held-out loss is of, where nothing else is said."""
_T = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for a 95% interval by degrees of freedom."""


class Arm(NamedTuple):
    name: str
    changes: tuple[str, ...]


class Ablation(NamedTuple):
    """What is to be trained: a recipe for each arm and seed, checked."""

    arms: list[Arm]
    seeds: range
    recipes: dict[tuple[str, int], Recipe]
    """By the name of the arm and the seed."""


def plan_ablation(recipe: str, changes: Sequence[str], num_seeds: int, folder: Path) -> Ablation:
    """Every recipe, refused before anything is trained if one of them cannot start."""
    common, arms = read_arms(changes)
    for change in common:
        if change.startswith(("run.dir=", "run.seed=", "run.mirror=")):
            raise ValueError(f"{change}: an ablation sets the folder and seed of each run; use --out and --seeds")
    _check_folder(folder)
    recipes = {}
    for arm, seed in itertools.product(arms, range(num_seeds)):
        place = folder / _folder_name(arm.name) / f"seed-{seed}"
        places = [f"run.dir={place}", f"run.seed={seed}", "run.mirror=none"]
        recipes[arm.name, seed] = read_recipe(recipe, [*common, *arm.changes, *places])
        check_pretraining(recipes[arm.name, seed])
    return Ablation(arms, range(num_seeds), recipes)


def _check_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but arms and their page, which may be those of earlier arms."""
    check_no_file("--out", folder)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        is_arm = path.is_dir() and all(child.name.startswith("seed-") for child in path.iterdir())
        if not is_arm and path.name not in (PAGE, durable.temporary_path(folder / PAGE).name):
            raise ValueError(f"--out {folder} holds other files ({path.name}); choose an empty folder")


def read_arms(changes: Sequence[str]) -> tuple[list[str], list[Arm]]:
    """The changes that all arms share, and an arm for every combination of the values of keys with several:
    `key=[a,b]`, or of a key that is a list itself `key=[[a],[a,b]]`."""
    common, axes = [], []
    for change in changes:
        key, _, text = change.partition("=")
        values = _values(key, text.strip())
        if values is None:
            common.append(change)
        else:
            axes.append([f"{key}={value}" for value in values])
    if not axes:
        raise ValueError("nothing to compare: give a key several values, for example 'optim.lr=[5e-4,1e-3]'")
    arms = [Arm(", ".join(chosen), chosen) for chosen in itertools.product(*axes)]
    if len({_folder_name(arm.name) for arm in arms}) < len(arms):
        raise ValueError(f"two arms are the same: {'; '.join(arm.name for arm in arms)}")
    return common, arms


def _values(key: str, text: str) -> list[str] | None:
    """The values of a key that has several of them."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    values, depth = [""], 0
    for char in text[1:-1]:
        depth += (char in "[{") - (char in "]}")
        if char == "," and depth == 0:
            values.append("")
        else:
            values[-1] += char
    values = [value.strip() for value in values]
    kinds = [entry.kind for entry in entries(Recipe) if entry.key == key]
    is_list = any(typing.get_origin(kind) in (list, tuple) for kind in kinds)
    if is_list and not all(value.startswith("[") for value in values):
        return None
    if len(values) < 2 or "" in values:
        raise ValueError(f"{key}={text}: give several values, one per arm, got {text}")
    return values


def _folder_name(name: str) -> str:
    return re.sub(r"[^\w.=+-]+", "-", name).strip("-")[:120]


def ablate(ablation: Ablation) -> tuple[int, dict[str, str]]:
    """Train what is not trained yet, seed by seed. Returns the exit code of a run that was stopped, else 0, and why
    arms ended early: those that surely lose get no further seed."""
    ended: dict[str, str] = {}
    for seed in ablation.seeds:
        for number, arm in enumerate(ablation.arms, start=1):
            recipe = ablation.recipes[arm.name, seed]
            if arm.name in ended or _is_finished(Path(recipe.run.dir)):
                continue
            print(f"arm {number} of {len(ablation.arms)}: {arm.name}, seed {seed}", file=sys.stderr, flush=True)
            from bertkit.pretrain.train import pretrain

            code = pretrain(recipe)
            if code:
                return code, ended
        if seed + 1 < len(ablation.seeds):
            found = results(ablation._replace(seeds=range(seed + 1)))
            lost = {name: why for name, why in _losers(found).items() if name not in ended}
            for name, why in lost.items():
                print(f"{name} ends after {seed + 1} seeds: {why}", file=sys.stderr, flush=True)
            ended |= lost
    return 0, ended


def results(ablation: Ablation) -> dict[str, dict[int, dict[str, float]]]:
    """By arm and seed, what the finished runs reached. A held-out loss that measures something else than that of the
    first arm is left out: the two do not compare."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for arm in ablation.arms:
        folders = {seed: Path(ablation.recipes[arm.name, seed].run.dir) for seed in ablation.seeds}
        found[arm.name] = {seed: _reached(folder) for seed, folder in folders.items() if _is_finished(folder)}
    first = [run["measures"] for run in found[ablation.arms[0].name].values()]
    for run in itertools.chain.from_iterable(runs.values() for runs in found.values()):
        if run.pop("measures") not in first:
            for score in [score for score, (kind, _) in SCORES.items() if kind == "eval"]:
                run.pop(score, None)
    return found


def comparison(ablation: Ablation, ended: dict[str, str]) -> dict[str, Any]:
    """Every arm beside the first: means, and differences in pairs of one seed with their 95% intervals."""
    found = results(ablation)
    first = found[ablation.arms[0].name]
    recipes = list(ablation.recipes.values())
    budgets = {f"{name}={value}" for r in recipes for name in BUDGETS if (value := getattr(r.train, name)) is not None}
    rows = []
    for arm in ablation.arms:
        runs = found[arm.name]
        row: dict[str, Any] = {"name": arm.name, "ended_early": ended.get(arm.name), "scores": {}, "runs": runs}
        for score in SCORES:
            values = [run[score] for run in runs.values() if score in run]
            shared = [seed for seed in runs if seed in first and score in runs[seed] and score in first[seed]]
            if values:
                row["scores"][score] = {
                    "mean": fmean(values),
                    "deviation": stdev(values) if len(values) > 1 else None,
                    "difference": paired([runs[seed][score] - first[seed][score] for seed in shared]),
                }
        rows.append(row)
    return {
        "arms": rows,
        "baseline": ablation.arms[0].name,
        "budget": sorted(budgets),
        "num_seeds": len(ablation.seeds),
        "notes": _notes(ablation),
    }


def paired(differences: Sequence[float]) -> dict[str, float | None] | None:
    """Mean of the differences with its 95% interval by Student's t; one difference has no interval."""
    if not differences:
        return None
    mean, num = fmean(differences), len(differences)
    if num == 1:
        return {"mean": mean, "low": None, "high": None}
    # Beyond the table, the first terms of t's expansion around the normal distribution.
    z, free = 1.959964, num - 1
    t = _T[free] if free < len(_T) else z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    spread = t * stdev(differences) / math.sqrt(num)
    return {"mean": mean, "low": mean - spread, "high": mean + spread}


def told_difference(score: dict[str, Any], is_baseline: bool) -> str:
    """How far an arm is from the first one, with the interval where there is one; nothing of the first itself."""
    difference = score["difference"]
    if not difference or is_baseline:
        return ""
    span = "" if difference["low"] is None else f" ({difference['low']:+.4f}, {difference['high']:+.4f})"
    return f"{difference['mean']:+.4f}{span}"


def _losers(found: dict[str, dict[int, dict[str, float]]]) -> dict[str, str]:
    """Arms whose held-out loss is surely above that of the best arm so far."""
    losses = {
        name: {seed: run[_DECIDES] for seed, run in runs.items() if _DECIDES in run} for name, runs in found.items()
    }
    losses = {name: runs for name, runs in losses.items() if len(runs) > 1}
    if not losses:
        return {}
    best = min(losses, key=lambda name: fmean(losses[name].values()))
    lost = {}
    for name, runs in losses.items():
        above = paired([loss - losses[best][seed] for seed, loss in runs.items() if seed in losses[best]])
        if name != best and above and (above["low"] or 0) > 0:
            lost[name] = f"its loss is {above['mean']:.3f} ({above['low']:.3f} to {above['high']:.3f}) above {best}"
    return lost


def _is_finished(folder: Path) -> bool:
    facts = read_facts(folder)
    return bool(facts and (folder / EXPORT).is_dir() and _reached(folder).get("steps", 0) >= facts["total_steps"])


def _reached(folder: Path) -> dict[str, Any]:
    """The newest of every number that a run wrote down, and what its held-out loss measures."""
    newest = {record.get("kind"): record for _, record in read_metrics(folder)}
    trained = newest.get("train", {})
    reached = {name: newest.get(kind, {}).get(key) for name, (kind, key) in SCORES.items()}
    reached |= {"steps": trained.get("step"), "tokens": trained.get("tokens"), "seconds": trained.get("seconds")}
    measures = newest.get("eval", {}).get("measures", _MASKED)
    return {name: value for name, value in reached.items() if value is not None} | {"measures": measures}


def _notes(ablation: Ablation) -> list[str]:
    """Where the numbers of the arms do not compare."""
    folders = [Path(recipe.run.dir) for recipe in ablation.recipes.values()]
    facts = [read_facts(folder) or {} for folder in folders]
    measures = sorted({_reached(folder)["measures"] for folder in folders if _is_finished(folder)})
    if len(measures) > 1:
        return [f"held-out losses are of {' or '.join(measures)}; those unlike the first arm's are left out"]
    if len({fact["tokenizer"] for fact in facts if "tokenizer" in fact}) > 1:
        return ["the arms have different tokenizers, whose losses do not compare; minimal pairs (eval.pairs) do"]
    if len({fact["rows"] for fact in facts if "rows" in fact}) > 1:
        return ["the arms have different rows, so their losses are not of the same tokens"]
    return []
