"""Fine-tuning: a model for each seed, and the best of them as the run's export.

Started again with the same recipe it resumes from the newest checkpoint of the seed it was at, to the same weights
bit for bit: rows, dropout and rates are functions of the seed and the step.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accelerate import Accelerator

from bertkit.config.finetune import FinetuneRecipe
from bertkit.events import event, events_about
from bertkit.finetune.batches import drawing_windows, hiding_tokens, training_batches
from bertkit.finetune.checks import check_finetune
from bertkit.finetune.evaluation import evaluate
from bertkit.finetune.labeled import Labeled
from bertkit.finetune.model_with_loss import ModelWithLoss, class_weights, layer_lr_scale
from bertkit.finetune.results import SCORES, finish_seed, seed_folder, summarise
from bertkit.finetune.score_tables import print_results, score_line
from bertkit.finetune.start import Start, adapt, check_labels, find_given, find_start
from bertkit.finetune.tasks import TASKS
from bertkit.finetune.tuning_data import Steps, TuningData, fix_steps, make_tuning_data
from bertkit.model.initialization import outline_encoder
from bertkit.run.advice import Adviser
from bertkit.run.checkpoint import load_checkpoint, resume, save
from bertkit.run.folder import CHECKPOINTS, EXPORT, check_facts, make_places
from bertkit.run.log import RunLog
from bertkit.run.loop import StepRules, run_steps
from bertkit.run.optim import build_optimizers
from bertkit.run.peak import count_flops, share_of_peak
from bertkit.run.ranks import Trainable, is_sharded, wrap
from bertkit.run.room import activation_bytes, check_disk, check_memory, free_memory
from bertkit.run.start import Run, check_same_start, start_run
from bertkit.run.state import LoopState, restore_state
from data_pipelines.masks.plan import Plan

Finish = Callable[[LoopState, Trainable, RunLog], None]
"""What is done with a trained model: scored and exported, or asked about sentences it has not seen."""


def finetune(recipe: FinetuneRecipe) -> int:
    """Train every seed as the recipe says, from the start or from where it stopped. Returns the exit code."""
    folder = Path(recipe.run.dir)
    with start_tuning(recipe, folder) as (run, labeled, start, facts):
        if all(_is_done(seed_folder(recipe, seed)) for seed in recipe.run.seeds) and _is_done(folder):
            seeds = f"seed{'s' if len(recipe.run.seeds) > 1 else ''} {', '.join(map(str, recipe.run.seeds))}"
            run.say(f"{folder} is finished: {seeds}; the model is in {folder / EXPORT}")
        accelerator = connect(recipe, run, start, facts)
        data = make_tuning_data(TASKS[recipe.task], labeled, start, recipe.data)
        steps = fix_steps(folder, facts, data, recipe.train, accelerator)
        _check_batch_fits(recipe, data, steps, accelerator)
        for seed in recipe.run.seeds:
            with events_about(seed=seed):
                exit_code = train_seed(recipe, data, steps, seed, run)
            if exit_code:
                return exit_code
        run.steps_done()
        if accelerator.is_main_process:
            results = summarise(recipe, data, steps)
            print_results(data.task, results)
            _tell_supervisor(results)
        accelerator.wait_for_everyone()
    return 0


def _tell_supervisor(results: dict[str, Any]) -> None:
    for text in results["warnings"]:
        event("warning", text=text)
    scores = {part: results[part]["mean"] for part in ("dev", "test") if part in results}
    named = {name: results[name] for name in ("score", "best_seed", "export")}
    event("finished", **scores, **named, exit_code=0)


@contextmanager
def start_tuning(
    recipe: FinetuneRecipe, folder: Path, further: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[tuple[Run, Labeled, Start, dict[str, Any]]]:
    """A run that has read its labels and found its model, and the facts that a resume must agree with; `folder` keeps
    them, beside what `further` says of the run."""
    check_finetune(recipe)
    task = TASKS[recipe.task]
    given = find_given(recipe.model, task.head)
    labeled = task.read(recipe.data)
    check_labels(given, labeled.labels)
    with start_run(Path(recipe.run.dir), recipe) as run:
        folder.mkdir(parents=True, exist_ok=True)
        if given is not None and recipe.train.adapts:
            run.say("adapting the encoder to the text of the training data")
            with events_about(stage="adapting"):
                given = adapt(recipe, given, labeled)
        start = find_start(given, recipe.model.like, task, labeled, folder, run.say)
        tokenizer = start.tokenizer.fingerprint
        facts = {"labeled": labeled.fingerprint, "tokenizer": tokenizer, "init": start.fingerprint, **further}
        check_facts(folder, facts)
        for note in labeled.notes:
            run.say(note)
        yield run, labeled, start, facts


def connect(recipe: FinetuneRecipe, run: Run, start: Start, facts: dict[str, Any]) -> Accelerator:
    """All ranks, which have found the same, with room enough for the model."""
    accelerator = run.connect(recipe.train.precision, recipe.run.trackers)
    check_same_start(accelerator, recipe, lambda: facts)
    check_memory(_model_needs(recipe, start), accelerator.device)
    check_disk(run.folder, _num_parameters(start))
    return accelerator


def _check_batch_fits(recipe: FinetuneRecipe, data: TuningData, steps: Steps, accelerator: Accelerator) -> None:
    """Refuse a batch that does not fit the memory beside the model; a frozen encoder keeps nothing of it."""
    rows, num_rows = data.rows["train"], math.ceil(steps.batch / accelerator.num_processes)
    # A row may hold all windows of a text; a micro-batch has as many windows as it would have rows.
    tokens_per_window = sum(len(row.ids_L) for row in rows) / sum(row.num_windows for row in rows)
    num_tokens = min(recipe.train.micro_batch, num_rows) * tokens_per_window
    kept = 0.0 if recipe.model.freeze else activation_bytes(data.start.config, num_tokens)
    check_memory({**_model_needs(recipe, data.start), "train.micro_batch": kept}, accelerator.device)


def _model_needs(recipe: FinetuneRecipe, start: Start) -> dict[str, float]:
    return {"model.init" if recipe.model.init else "model.like": 12.0 * _num_parameters(start)}


def _num_parameters(start: Start) -> int:
    return sum(param.numel() for param in outline_encoder(start.config).parameters())


def train_seed(recipe: FinetuneRecipe, data: TuningData, steps: Steps, seed: int, run: Run) -> int:
    """Train a seed, score it, export it; one that is done stays as it is. Returns the exit code."""
    folder = seed_folder(recipe, seed)
    if _is_done(folder):
        return 0
    return train_model(recipe, data, steps, seed, folder, run, partial(finish_seed, recipe, data, seed))


def train_model(
    recipe: FinetuneRecipe, data: TuningData, steps: Steps, seed: int, folder: Path, run: Run, finish: Finish
) -> int:
    """Build or resume, loop over the steps, take the best step, and finish with it. Returns the exit code."""
    accelerator, rows = run.accelerator, data.rows["train"]
    folder.mkdir(exist_ok=True)
    if accelerator.is_main_process:
        make_places(folder, recipe.run.restart)
    model = _build(recipe, data, seed, outline=is_sharded(accelerator))
    lr_scale = layer_lr_scale(model.model, recipe.optim.layer_decay)
    trainable = wrap(accelerator, model, partial(build_optimizers, config=recipe.optim, lr_scale=lr_scale))
    state = resume(folder, trainable, LoopState())

    def out_of_patience() -> bool:
        return 0 < recipe.train.patience <= state.stale

    remaining = range(state.step, state.step if out_of_patience() else steps.total)
    share = (accelerator.process_index, accelerator.num_processes)
    plan = Plan(len(rows), steps.batch, seed)
    draw = data.task.drawn
    if data.task.pools_windows:
        draw = drawing_windows(draw, recipe.data.train_windows)
    if recipe.train.token_dropout:
        draw = hiding_tokens(draw, recipe.train.token_dropout, data.start.tokenizer.special)
    batches_of_steps = training_batches(rows, plan, remaining, share, recipe.train.micro_batch, draw)
    rules = StepRules(total_steps=steps.total, seed=seed, optim=recipe.optim, train=recipe.train)
    eval_every = max(1, math.ceil(len(rows) / steps.batch) // recipe.eval.per_epoch)
    deciding = data.task.deciding(data.labeled)
    with _open_log(recipe, model, state, rules, folder, run) as log:
        log.begin(_greeting(recipe, data, steps, seed, state.step))
        run.begin_steps()
        for result in run_steps(trainable, batches_of_steps, state, rules, log, run.asked_to_stop):
            last = state.step == steps.total
            evaluated = bool(data.rows["dev"]) and not result.stop and (last or state.step % eval_every == 0)
            if evaluated:
                scores = evaluate(data, "dev", trainable)
                log.record("dev", state.step, scores, f"step {state.step}  dev: {score_line(data.task, scores)}")
                state.note_score(scores[deciding])
            if last or evaluated or result.stop or state.step % recipe.run.save_every == 0:
                save(folder, state, trainable, recipe.run.keep)
            if result.stop:
                log.stop(f" of seed {seed}", run.exit_code)
                return run.exit_code
            if out_of_patience() and not last:
                break

        run.steps_done()
        if state.step < steps.total:
            log.say(f"stopped early: no better {deciding} in {state.stale} evaluations")
        _take_best_step(folder, state, trainable)
        finish(state, trainable, log)
    return 0


def _is_done(folder: Path) -> bool:
    return (folder / SCORES).is_file() and (folder / EXPORT).is_dir()


def _build(recipe: FinetuneRecipe, data: TuningData, seed: int, outline: bool) -> ModelWithLoss:
    balanced = recipe.train.class_weights == "balanced"
    if balanced and not data.labeled.labels:
        raise ValueError(f"train.class_weights=balanced weighs labels, but the task {recipe.task} has none")
    weights_K = class_weights(data.rows["train"], len(data.labeled.labels)) if balanced else None
    model = ModelWithLoss(data.start.build(seed, outline), data.task, weights_K)
    if recipe.model.freeze:
        model.model.encoder.requires_grad_(False)
    return model


def _open_log(
    recipe: FinetuneRecipe, model: ModelWithLoss, state: LoopState, rules: StepRules, folder: Path, run: Run
) -> RunLog:
    accelerator = run.accelerator
    return RunLog(
        folder if accelerator.is_main_process else None,
        state,
        rules=rules,
        log_every=recipe.run.log_every,
        share_of_peak=share_of_peak(count_flops(model.model), accelerator),
        adviser=Adviser(
            total_steps=rules.total_steps,
            unigram=None,
            num_workers=None,
            free_memory=lambda: free_memory(accelerator.device),
            memory_remedy="a smaller train.micro_batch or data.max_length needs less",
        ),
        track=lambda values, step: accelerator.log({f"{folder.name}/{k}": v for k, v in values.items()}, step=step),
    )


def _greeting(recipe: FinetuneRecipe, data: TuningData, steps: Steps, seed: int, step: int) -> str:
    start = f"resuming from step {step} of" if step else "training"
    origin = f"from {recipe.model.init}" if recipe.model.init else f"from scratch, shaped like {recipe.model.like}"
    sentences, rows = data.labeled.train, data.rows["train"]
    count = sum(row.num_windows for row in rows)
    longer = f" ({count - len(sentences):,} further windows of long ones)" if count > len(sentences) else ""
    windows = f" in {count:,} windows" if data.form.context else longer
    labels = f", {len(data.labeled.labels)} labels" if data.labeled.labels else ""
    return (
        f"seed {seed}: {start} {steps.total} steps of {steps.batch}, {origin}; "
        f"{len(sentences):,} {data.task.examples}{windows}{labels}"
    )


def _take_best_step(folder: Path, state: LoopState, trainable: Trainable) -> None:
    if state.best_step is not None and state.best_step != state.step:
        path = folder / CHECKPOINTS / f"step-{state.best_step:08d}"
        best = load_checkpoint(path, verify=trainable.accelerator.is_local_main_process)
        restore_state(trainable.model, (), {**best.tensors, "optimizer": {}})
