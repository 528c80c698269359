"""Labels that are likely wrong: every sentence is judged by a model trained on the other folds.

Each fold is trained as any run is: it stops at a signal and resumes with the same command. What its model predicts for
the sentences that it has not seen is saved, and its checkpoints are removed.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from bertkit.config.finetune import FinetuneRecipe
from bertkit.finetune.checks import check_find_errors
from bertkit.finetune.clinic.doubts import Doubt
from bertkit.finetune.clinic.folds import folds_of
from bertkit.finetune.clinic.suspects import as_record, find_suspects, summary
from bertkit.finetune.evaluation import doubts_about
from bertkit.finetune.labeled import CONTEXT, Labeled
from bertkit.finetune.start import Start
from bertkit.finetune.tasks import TASKS
from bertkit.finetune.train import connect, start_tuning, train_model
from bertkit.finetune.tuning_data import fix_steps, make_tuning_data
from bertkit.run.folder import CHECKPOINTS, read_facts, write_facts
from bertkit.run.log import RunLog
from bertkit.run.ranks import Trainable
from bertkit.run.start import Run
from bertkit.run.state import LoopState
from data_pipelines import durable

FOLDER, LIST, SUMMARY = "label-errors", "label-errors.jsonl", "label-errors.json"
_DOUBTS = "doubts.json"


def find_errors(recipe: FinetuneRecipe, folds: int) -> tuple[int, dict[str, Any] | None]:
    """Train every fold, from the start or from where it stopped, and list the labels of data.train with which the
    models do not agree. Gives the exit code, and what was found: None on ranks other than the first."""
    check_find_errors(recipe, folds)
    folder, (seed,) = Path(recipe.run.dir) / FOLDER, recipe.run.seeds
    with start_tuning(recipe, folder, {"folds": f"{folds} of seed {seed}"}) as (run, labeled, start, facts):
        fold_S = folds_of(labeled.train, folds, seed, documents=CONTEXT in labeled.settings)
        accelerator = connect(recipe, run, start, facts)
        if accelerator.is_main_process and read_facts(folder) is None:
            write_facts(folder, facts)
        for fold in range(folds):
            exit_code = _train_fold(recipe, labeled, start, fold_S, fold, run)
            if exit_code:
                return exit_code, None
        run.steps_done()
        found = _write_list(folder, labeled, fold_S) if accelerator.is_main_process else None
        accelerator.wait_for_everyone()
    return 0, found


def _train_fold(recipe: FinetuneRecipe, labeled: Labeled, start: Start, fold_S: list[int], fold: int, run: Run) -> int:
    """Learn from the other folds, ask about this one. Returns the exit code."""
    folder, task, (seed,) = _fold_folder(Path(recipe.run.dir) / FOLDER, fold), TASKS[recipe.task], recipe.run.seeds
    if (folder / _DOUBTS).is_file():
        return 0
    run.say(f"fold {fold + 1} of {max(fold_S) + 1}")
    learnt, asked = (
        [sentence for sentence, its in zip(labeled.train, fold_S, strict=True) if (its == fold) == held]
        for held in (False, True)
    )
    mine = labeled._replace(train=learnt, dev=[], test=asked)
    data = make_tuning_data(task, mine, start, recipe.data)
    folder.mkdir(exist_ok=True)
    steps = fix_steps(folder, {}, data, recipe.train, run.accelerator)

    def finish(state: LoopState, trainable: Trainable, log: RunLog) -> None:
        doubts_S = doubts_about(data, "test", trainable)
        if run.accelerator.is_main_process:
            durable.replace_file(folder / _DOUBTS, durable.json_bytes(doubts_S))
            shutil.rmtree(folder / CHECKPOINTS)
        run.accelerator.wait_for_everyone()

    return train_model(recipe, data, steps, seed, folder, run, finish)


def _fold_folder(folder: Path, fold: int) -> Path:
    return folder / f"fold-{fold + 1}"


def _write_list(folder: Path, labeled: Labeled, fold_S: list[int]) -> dict[str, Any]:
    """The list, a suspect a line, and what sums it up."""
    told = [iter(json.loads((_fold_folder(folder, fold) / _DOUBTS).read_bytes())) for fold in range(max(fold_S) + 1)]
    doubts_S = [[_as_doubt(values) for values in next(told[fold])] for fold in fold_S]
    suspects = find_suspects(doubts_S)
    records = [as_record(suspect, labeled.train[suspect.sentence]) for suspect in suspects]
    durable.replace_file(folder / LIST, "".join(map(durable.json_line, records)).encode())
    facts = {"list": str(folder / LIST), "folds": len(told), **summary(suspects, doubts_S)}
    durable.replace_file(folder / SUMMARY, durable.json_bytes(facts))
    return {**facts, "suspects": records}


def _as_doubt(values: list[Any]) -> Doubt:
    unit, words, given, probability, suggested, suggested_probability, suggested_words = values
    return Doubt(unit, tuple(words), given, probability, suggested, suggested_probability, tuple(suggested_words))
