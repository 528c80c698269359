"""A recipe enters, a trained and exported encoder leaves. Read it from top to bottom: it runs in that order.

Started again with the same recipe it resumes from the newest checkpoint, to the same weights bit for bit: rows,
masks, dropout and rates are functions of the seed and the step. So a checkpoint holds weights, moments and a few
counters, and nothing else needs to be remembered.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from bertkit.config.recipe import Recipe
from bertkit.cpu import multiplies_in_bf16
from bertkit.hf import save as save_model
from bertkit.hf.models import stored_weights
from bertkit.pretrain.budget import decide_steps, load_budget, make_plan, read_lengths
from bertkit.pretrain.card import model_card
from bertkit.pretrain.checks import check_pretraining
from bertkit.pretrain.data import PretrainingData, open_data
from bertkit.pretrain.needs import check_needs, check_shape
from bertkit.pretrain.objectives import OBJECTIVES, Objective, Scorer
from bertkit.pretrain.pairs import pair_scorer
from bertkit.pretrain.start_model import build_model, new_head_note, warm_start
from bertkit.pretrain.stored_rows import order_note
from bertkit.run.advice import Adviser
from bertkit.run.checkpoint import checkpoints, resume, save
from bertkit.run.folder import CHECKPOINTS, EXPORT, check_facts, make_places, read_facts, write_facts
from bertkit.run.log import RunLog
from bertkit.run.loop import StepRules, run_steps
from bertkit.run.optim import build_optimizers
from bertkit.run.optim.average import average_weights, averaged
from bertkit.run.peak import count_flops, share_of_peak
from bertkit.run.ranks import (
    EvaluationStoppedError,
    Trainable,
    agree_on,
    bare_model,
    evaluating,
    is_sharded,
    rounding_facts,
    wrap,
    write_gathered,
)
from bertkit.run.room import check_disk, free_memory
from bertkit.run.start import Run, check_same_start, start_run
from bertkit.run.state import LoopState
from data_pipelines import durable


def pretrain(recipe: Recipe) -> int:
    """Train as the recipe says, from the start or from where it stopped. Returns the exit code."""
    check_pretraining(recipe)
    with start_run(Path(recipe.run.dir), recipe) as run:
        if run.is_first:
            make_places(run.folder, recipe.run.restart)
        check_shape(recipe)
        data = open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run, run.is_first)
        check_facts(run.folder, data.facts())
        run.connect(recipe.train.precision, recipe.run.trackers)
        check_same_start(run.accelerator, recipe, data.facts_of_ranks)
        exit_code = train(recipe, data, run)
        run.mirror.finish(with_export=exit_code == 0)
        return exit_code


def train(recipe: Recipe, data: PretrainingData, run: Run) -> int:
    """Build or resume, loop over the steps, export."""
    check_needs(recipe, data, run.accelerator.device)
    objective = OBJECTIVES[recipe.train.objective](recipe, data)
    bare = build_model(recipe, data, objective, outline=is_sharded(run.accelerator))
    # A resumed run has its embeddings in the checkpoint.
    start_seconds = 0.0 if checkpoints(run.folder / CHECKPOINTS) else warm_start(bare, recipe, data)
    num_parameters, flops = sum(param.numel() for param in bare.parameters()), count_flops(bare)
    check_disk(run.folder, num_parameters)
    trainable = wrap(run.accelerator, bare, partial(build_optimizers, config=recipe.optim), recipe.train.compile)
    total_steps = fixed_steps(recipe, data, objective, trainable, start_seconds)
    state = resume(run.folder, trainable, LoopState(seconds=start_seconds))
    if state.step >= total_steps and (run.folder / EXPORT).is_dir():
        run.steps_done()
        text = f"{run.folder} is finished: {state.step} steps; the model is in {run.folder / EXPORT}"
        run.say(text, "finished", step=state.step, export=str(run.folder / EXPORT), exit_code=0)
        return 0

    held_out, old_domain = (
        objective.make_scorer(rows) if objective.make_scorer and rows is not None and len(rows) else None
        for rows in (data.validation, data.old_domain)
    )
    pairs = pair_scorer(recipe, data, objective, bare)
    rules = StepRules(total_steps=total_steps, seed=recipe.run.seed, optim=recipe.optim, train=recipe.train)
    with open_log(recipe, objective, run, state, rules, flops) as log:
        log.begin(_greeting(recipe, data, num_parameters, state.step, total_steps, run.accelerator.num_processes))
        if state.step == 0:
            for note in _notes(recipe, data, bare, run):
                log.say(note)
            evaluate(old_domain, trainable, log, 0, "old_domain")
        run.begin_steps()
        scores = judged = None
        batches_of_steps = load_budget(recipe, data, objective, trainable, state, rules, log)
        for result in run_steps(trainable, batches_of_steps, state, rules, log, run.asked_to_stop):
            last, improved = state.step == rules.total_steps, False
            average_weights(trainable.optimizers, state.step, rules.total_steps, recipe.train.average)
            if not (stop := result.stop) and (last or _due(state.step, recipe.eval.every)):
                try:
                    scores = evaluate(held_out, trainable, log, state.step, "eval", run.asked_to_stop)
                    improved = scores is not None and state.note_score(-scores["loss"])
                    judged = evaluate(pairs, trainable, log, state.step, "pairs", run.asked_to_stop)
                except EvaluationStoppedError:
                    stop = True
            if last or improved or stop or _due(state.step, recipe.run.save_every):
                save_and_copy(run, state, trainable, recipe.run.keep)
            if stop:
                log.stop("", run.exit_code)
                return run.exit_code

        run.steps_done()
        # A run that was stopped after its last step resumes here, with nothing scored.
        scores = scores or evaluate(held_out, trainable, log, state.step, "eval")
        judged = judged or evaluate(pairs, trainable, log, state.step, "pairs")
        evaluate(old_domain, trainable, log, state.step, "old_domain")
        export(recipe, data, objective, trainable, state, epochs_read(recipe, data, state.step), scores)
        text = f"done after {state.seconds / 60:.1f} minutes of training; the model is in {run.folder / EXPORT}"
        log.say(text, "finished", step=state.step, export=str(run.folder / EXPORT), exit_code=0)
        run.accelerator.wait_for_everyone()
    return 0


def save_and_copy(run: Run, state: LoopState, trainable: Trainable, keep: int) -> None:
    """Save a checkpoint, on the disk and on the store if the run has one."""
    save(run.folder, state, trainable, keep, run.mirror.held)
    run.mirror.copy(state.step)


def fixed_steps(recipe: Recipe, data: PretrainingData, objective: Objective, trainable: Trainable, spent: float) -> int:
    """How many steps the run has: decided when it begins, and the same on every rank and at every resume."""
    folder = Path(recipe.run.dir)
    facts = agree_on(trainable.accelerator, read_facts(folder))
    if facts is None:
        total_steps = decide_steps(recipe, data, objective, trainable, spent)
        facts = data.facts() | {"total_steps": total_steps} | rounding_facts(trainable.accelerator)
        if trainable.accelerator.is_main_process:
            write_facts(folder, facts)
    return int(facts["total_steps"])


def open_log(
    recipe: Recipe,
    objective: Objective,
    run: Run,
    state: LoopState,
    rules: StepRules,
    flops: Callable[[int, int], float],
) -> RunLog:
    adviser = Adviser(
        total_steps=rules.total_steps,
        first_step=state.step,
        unigram=objective.baseline_loss,
        num_workers=recipe.run.num_workers,
        free_memory=lambda: free_memory(run.accelerator.device),
    )
    return RunLog(
        run.folder if run.is_first else None,
        state,
        rules=rules,
        log_every=recipe.run.log_every,
        share_of_peak=share_of_peak(flops, run.accelerator),
        adviser=adviser,
        track=lambda values, step: run.accelerator.log(values, step=step),
    )


def evaluate(
    score: Scorer | None,
    trainable: Trainable,
    log: RunLog,
    step: int,
    kind: str,
    stop: Callable[[], bool] | None = None,
) -> dict[str, Any] | None:
    """Scores on held-out rows or pairs, logged and printed; None where there are none. Where a rank is asked to `stop`,
    all leave with an EvaluationStoppedError."""
    if score is None:
        return None
    with averaged(trainable.optimizers), evaluating(trainable, stop) as evaluation:
        scores = score(evaluation)
    shown = {"loss": ".4f", "perplexity": ".2f", "accuracy": ".1%"}
    numbers = "  ".join(f"{name} {scores[name]:{form}}" for name, form in shown.items() if name in scores)
    log.record(kind, step, scores, f"step {step}  {kind.replace('_', ' ')}: {numbers}")
    return scores


def epochs_read(recipe: Recipe, data: PretrainingData, step: int) -> float:
    """How often the rows were read before this step."""
    plan = make_plan(recipe, data, read_lengths(Path(recipe.run.dir)))
    return plan.rows_before_step(step) / len(data.train)


def export(
    recipe: Recipe,
    data: PretrainingData,
    objective: Objective,
    trainable: Trainable,
    state: LoopState,
    epochs: float,
    scores: dict[str, Any] | None,
) -> None:
    """Write the trained model with its tokenizer and its card. All ranks take part."""
    model = objective.exported(bare_model(trainable))

    def write(gathered: Iterator[Tensor]) -> None:
        card = model_card(recipe, model, objective.summary, state, epochs, scores)
        with durable.replacing_folder(Path(recipe.run.dir) / EXPORT) as unfinished:
            save_model(model, unfinished, data.tokenizer, gathered=gathered)
            durable.write_file(unfinished / "README.md", card.encode())

    with averaged(trainable.optimizers):
        write_gathered(trainable.accelerator, {"model": stored_weights(model)}, write)


def _notes(recipe: Recipe, data: PretrainingData, model: Any, run: Run) -> Iterator[str]:
    """What is good to know before the first step."""
    yield from filter(None, (new_head_note(data, model), order_note(data.train, recipe.data)))
    # Precision changes weights, so a CPU that could compute faster does not decide it by itself.
    if recipe.train.precision == "auto" and run.accelerator.device.type == "cpu" and multiplies_in_bf16():
        yield "this processor multiplies in bf16: train.precision=bf16 makes steps faster and rounds differently"


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _greeting(
    recipe: Recipe, data: PretrainingData, num_parameters: int, step: int, total_steps: int, num_processes: int
) -> str:
    start = f"resuming from step {step} of" if step else "training"
    held_out = f"{len(data.validation):,} held out" if len(data.validation) else "none held out, so no evaluation"
    return (
        f"{start} {total_steps} steps of {recipe.train.global_batch} rows in {recipe.run.dir}: "
        f"{len(data.train):,} rows to train on, {held_out}; {num_parameters:,} parameters, "
        f"{num_processes} process{'es' if num_processes > 1 else ''}"
    )
