"""A trained model to its scores and its export, and several seeds to their mean and the best one."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from bertkit.config.finetune import FinetuneRecipe
from bertkit.finetune.answers import SPAN_POWER
from bertkit.finetune.card import tagger_card
from bertkit.finetune.cautions import cautions
from bertkit.finetune.evaluation import all_scores, ask_once, fit_temperatures
from bertkit.finetune.metrics import mean_and_deviation
from bertkit.finetune.predict.settings import SETTINGS, files_settings, settings_bytes
from bertkit.finetune.score_tables import score_line, worst_text
from bertkit.finetune.tasks.calibration import bake_in
from bertkit.finetune.tasks.task import Scores
from bertkit.finetune.tuning_data import Steps, TuningData
from bertkit.hf import save
from bertkit.hf.models import stored_weights
from bertkit.model.heads import ModelWithHead
from bertkit.run.folder import EXPORT
from bertkit.run.log import RunLog
from bertkit.run.ranks import Trainable, bare_model, write_gathered
from bertkit.run.state import LoopState
from data_pipelines import durable

SCORES, WORST = "scores.json", "worst.txt"


def finish_seed(
    recipe: FinetuneRecipe, data: TuningData, seed: int, state: LoopState, trainable: Trainable, log: RunLog
) -> None:
    """Score the chosen weights on dev and test, look at the mistakes, write the export and then the scores."""
    found: dict[str, Any] = {"seed": seed, "step": state.best_step or state.step, "seconds": state.seconds}
    answers = {part: ask_once(data, part, trainable) for part in ("dev", "test") if data.rows[part]}
    temperatures = fit_temperatures(data, answers["dev"], trainable) if "dev" in answers else None
    if temperatures is not None:
        found |= temperatures.fitted
    for part, answered in answers.items():
        scores = found[part] = all_scores(data, answered, temperatures, recipe.eval.worst, trainable)
        line = f"best: step {found['step']}  {part}: {score_line(data.task, scores)}"
        log.record(f"best_{part}", found["step"], scores, line)
    _export(recipe, data, seed_folder(recipe, seed), found, trainable)
    trainable.accelerator.wait_for_everyone()


def _export(
    recipe: FinetuneRecipe, data: TuningData, folder: Path, found: dict[str, Any], trainable: Trainable
) -> None:
    """Write the trained model with all that `bertkit tag` needs, then its scores. All ranks take part."""
    model = bare_model(trainable).model
    settings = data.task.finished(model, data.labeled.settings)
    if "temperature" in found:
        bake_in(model, found["temperature"])
        settings = {**settings, **{name: found[name] for name in ("temperature", SPAN_POWER) if name in found}}
    _name_problem(model, data.task.problem_type)

    def write(gathered: Iterator[Tensor]) -> None:
        with durable.replacing_folder(folder / EXPORT) as unfinished:
            save(model, unfinished, data.start.tokenizer, gathered=gathered)
            durable.write_file(unfinished / "README.md", tagger_card(recipe, data, found).encode())
            known = {**files_settings(recipe.data), **settings}
            durable.write_file(unfinished / SETTINGS, settings_bytes(recipe.task, data.form, known))
        # Last: a seed with scores is a seed that is done.
        durable.replace_file(folder / SCORES, durable.json_bytes(found))

    write_gathered(trainable.accelerator, {"model": stored_weights(model)}, write)


def _name_problem(model: ModelWithHead, problem_type: str | None) -> None:
    if problem_type is not None:
        carried = {**model.config.carried, "problem_type": problem_type}
        model.config = dataclasses.replace(model.config, carried=carried)


def summarise(recipe: FinetuneRecipe, data: TuningData, steps: Steps) -> dict[str, Any]:
    """Scores of all seeds with mean and deviation, what makes them doubtful, and the best seed's export."""
    folder, name = Path(recipe.run.dir), data.task.deciding(data.labeled)
    seeds = [json.loads((seed_folder(recipe, seed) / SCORES).read_bytes()) for seed in recipe.run.seeds]
    best = max(seeds, key=lambda found: found["dev"][name]) if "dev" in seeds[0] else seeds[0]
    results: dict[str, Any] = {"task": recipe.task, "score": name, "best_seed": best["seed"], "seeds": seeds}
    baselines = _baseline_scores(data)
    for part in ("dev", "test"):
        if part in seeds[0]:
            mean, deviation = mean_and_deviation(found[part][name] for found in seeds)
            results[part] = {"mean": mean, "deviation": deviation, "baselines": baselines[part]}
    results["warnings"] = cautions(data, steps, results)
    source = seed_folder(recipe, best["seed"]) / EXPORT
    with durable.replacing_folder(folder / EXPORT) as unfinished:
        shutil.copytree(source, unfinished, dirs_exist_ok=True)
    durable.replace_file(folder / WORST, worst_text(best).encode(errors="replace"))
    durable.replace_file(folder / SCORES, durable.json_bytes(results))
    return {**results, "export": str(folder / EXPORT), "worst": str(folder / WORST)}


def _baseline_scores(data: TuningData) -> dict[str, dict[str, Scores]]:
    """Of dev and test, which are guessed at once: some baselines have to be fitted first."""
    dev, test = data.labeled.dev, data.labeled.test
    guesses = data.task.baselines(data.labeled, [*dev, *test]) if dev or test else {}
    parts = {"dev": (dev, slice(None, len(dev))), "test": (test, slice(len(dev), None))}
    return {
        part: {name: data.task.score(data.labeled, sentences, guess[here]) for name, guess in guesses.items()}
        for part, (sentences, here) in parts.items()
        if sentences
    }


def seed_folder(recipe: FinetuneRecipe, seed: int) -> Path:
    return Path(recipe.run.dir) / f"seed-{seed}"
