"""A trained model enters; its scores and its export leave, and of several seeds the mean and the best one."""

import json
import shutil
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import nn

from bertkit.config.finetune import FinetuneRecipe
from bertkit.finetune.answers import predict_labels
from bertkit.finetune.card import tagger_card, tagger_settings
from bertkit.finetune.inputs import Inputs
from bertkit.finetune.learner import Learner
from bertkit.finetune.looking import score_sentence
from bertkit.finetune.metrics import mean_and_deviation
from bertkit.finetune.scoring import baseline_scores, looked_at, main_score, scores_of
from bertkit.run.export import export_model
from bertkit.run.folder import EXPORT
from bertkit.run.log import RunLog
from bertkit.run.state import LoopState, gather_state, restore_state
from data_pipelines import durable

SCORES = "scores.json"


def evaluate(
    recipe: FinetuneRecipe, inputs: Inputs, part: str, model: nn.Module, accelerator: Accelerator
) -> tuple[dict[str, Any], list[list[str]]]:
    """Scores and predicted tags of one part of the data. All ranks take part."""
    sentences = inputs.sentences(part)
    num_words = [len(sentence.words) for sentence in sentences]
    predicted = predict_labels(model, accelerator, inputs.rows[part], num_words, inputs.labeled.labels)
    return scores_of(inputs.labeled, recipe.task, sentences, predicted, inputs.known), predicted


def finish_seed(
    recipe: FinetuneRecipe,
    inputs: Inputs,
    seed: int,
    state: LoopState,
    model: nn.Module,
    accelerator: Accelerator,
    log: RunLog,
) -> None:
    """Score the chosen weights on dev and test, look at the mistakes, write the export and then the scores."""
    found: dict[str, Any] = {"seed": seed, "step": state.best_step or state.step, "seconds": state.seconds}
    for part in ("dev", "test"):
        if inputs.rows[part]:
            scores, predicted = evaluate(recipe, inputs, part, model, accelerator)
            found[part] = scores | looked_at(inputs.sentences(part), predicted, recipe.eval.worst)
            log.record(f"best_{part}", found["step"], scores, f"best: {score_sentence(found['step'], part, scores)}")
    weights = gather_state(model, ())
    if accelerator.is_main_process:
        trained = Learner(inputs.start.build(seed), None)
        restore_state(trained, (), weights)
        export_model(
            seed_folder(recipe, seed) / EXPORT,
            trained.model.eval(),
            inputs.start.tokenizer,
            tagger_card(recipe, inputs.labeled, found),
            beside=tagger_settings(recipe, inputs.labeled, inputs.max_length),
        )
        # Last: a seed with scores is a seed that is done.
        durable.replace_file(seed_folder(recipe, seed) / SCORES, durable.json_bytes(found))
    accelerator.wait_for_everyone()


def summarise(recipe: FinetuneRecipe, inputs: Inputs) -> dict[str, Any]:
    """Scores of all seeds with mean and deviation, and the best seed's export as the run's."""
    folder, name = Path(recipe.run.dir), main_score(inputs.labeled)
    seeds = [json.loads((seed_folder(recipe, seed) / SCORES).read_bytes()) for seed in recipe.run.seeds]
    best = max(seeds, key=lambda found: found["dev"][name]) if "dev" in seeds[0] else seeds[0]
    results: dict[str, Any] = {"task": recipe.task, "score": name, "best_seed": best["seed"], "seeds": seeds}
    for part in ("dev", "test"):
        if part in seeds[0]:
            mean, deviation = mean_and_deviation(found[part][name] for found in seeds)
            baselines = baseline_scores(inputs.labeled, recipe.task, inputs.sentences(part))
            results[part] = {"mean": mean, "deviation": deviation, "baselines": baselines}
    source = seed_folder(recipe, best["seed"]) / EXPORT
    with durable.replacing_folder(folder / EXPORT) as unfinished:
        shutil.copytree(source, unfinished, dirs_exist_ok=True)
    durable.replace_file(folder / SCORES, durable.json_bytes(results))
    results["export"] = str(folder / EXPORT)
    return results


def seed_folder(recipe: FinetuneRecipe, seed: int) -> Path:
    return Path(recipe.run.dir) / f"seed-{seed}"
