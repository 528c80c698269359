"""A fine-tuning recipe enters; a tagger or text classifier leaves for each seed, the best of them as the run's export.

Started again with the same recipe it goes on from the newest checkpoint of the seed it was at, to the same weights
bit for bit: rows, dropout and rates are functions of the seed and the step.
"""

import contextlib
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path

from accelerate import Accelerator

from bertkit.config.fields import build
from bertkit.config.finetune import FinetuneRecipe
from bertkit.finetune.batches import training_steps
from bertkit.finetune.checks import check_start
from bertkit.finetune.data import read_labeled
from bertkit.finetune.inputs import Inputs, prepare
from bertkit.finetune.learner import Learner, class_weights, layer_speed
from bertkit.finetune.looking import print_results, score_sentence
from bertkit.finetune.results import SCORES, evaluate, finish_seed, seed_folder, summarise
from bertkit.finetune.scoring import main_score
from bertkit.finetune.start import check_labels, find_given, find_start
from bertkit.run.advice import Adviser, free_memory
from bertkit.run.checkpoint import load_checkpoint
from bertkit.run.folder import (
    CHECKPOINTS,
    EXPORT,
    check_facts,
    make_places,
    write_recipe,
)
from bertkit.run.heartbeat import Company
from bertkit.run.lock import locked
from bertkit.run.log import Watch
from bertkit.run.loop_state import Progress
from bertkit.run.optim import build_optimizers, set_lr
from bertkit.run.peak import count_flops, measure_peak
from bertkit.run.process import make_ready
from bertkit.run.ranks import start_accelerator, wrap
from bertkit.run.resume import resume, save
from bertkit.run.schedule import lr_share
from bertkit.run.signals import StopSignals
from bertkit.run.state import restore_state
from bertkit.run.step import train_step
from data_pipelines.masks.plan import Plan


def finetune(recipe: FinetuneRecipe) -> int:
    """Train every seed as the recipe says, from the start or from where it stopped. Returns the exit code."""
    make_ready()
    folder = Path(recipe.run.dir)
    first_rank = os.environ.get("RANK", "0") == "0"
    say = _say if first_rank else lambda text: None
    check_start(recipe)
    given = find_given(recipe)
    labeled = read_labeled(recipe.task, recipe.data)
    check_labels(recipe, given, labeled.labels)
    with contextlib.ExitStack() as until_exit:
        if first_rank:
            until_exit.enter_context(locked(folder / ".lock"))
            write_recipe(folder, recipe)
        company = until_exit.enter_context(Company())
        start = find_start(recipe, given, labeled, say)
        check_facts(folder, start.facts(labeled))
        for note in labeled.notes:
            say(note)
        if all(_is_done(seed_folder(recipe, seed)) for seed in recipe.run.seeds) and _is_done(folder):
            seeds = f"seed{'s' if len(recipe.run.seeds) > 1 else ''} {', '.join(map(str, recipe.run.seeds))}"
            say(f"{folder} is finished: {seeds}; the model is in {folder / EXPORT}")
        signals = until_exit.enter_context(StopSignals())
        accelerator = start_accelerator(folder, recipe.train.precision, recipe.run.trackers)
        until_exit.callback(accelerator.end_training)
        company.met()
        inputs = prepare(recipe, labeled, start, accelerator)
        for seed in recipe.run.seeds:
            exit_code = train_seed(recipe, inputs, seed, accelerator, signals)
            if exit_code:
                return exit_code
        if accelerator.is_main_process:
            results = summarise(recipe, inputs)
            print_results(results)
        accelerator.wait_for_everyone()
    return 0


def train_seed(
    recipe: FinetuneRecipe, inputs: Inputs, seed: int, accelerator: Accelerator, signals: StopSignals
) -> int:
    """Build or resume, loop over the steps, take the best step, score it, export it."""
    folder, total_steps = seed_folder(recipe, seed), inputs.total_steps
    if _is_done(folder):
        return 0
    folder.mkdir(exist_ok=True)
    if accelerator.is_main_process:
        make_places(folder)
    weights_K = class_weights(inputs) if recipe.train.class_weights == "balanced" else None
    bare = Learner(inputs.start.build(seed), weights_K)
    if recipe.model.freeze:
        bare.model.encoder.requires_grad_(False)
    flops = count_flops(bare.model)
    optimizers = build_optimizers(bare, recipe.optim, layer_speed(bare.model, recipe.optim.layer_decay))
    model, optimizers = wrap(accelerator, bare, optimizers)
    model.train()
    progress = build(Progress, resume(folder, model, optimizers, accelerator))

    plan = Plan(len(inputs.rows["train"]), inputs.batch, seed)
    steps = training_steps(
        inputs.rows["train"],
        inputs.answers,
        plan,
        first_step=progress.step,
        last_step=total_steps,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        micro_batch=recipe.train.micro_batch,
    )
    watch = Watch(
        folder if accelerator.is_main_process else None,
        first_step=progress.step,
        total_steps=total_steps,
        log_every=recipe.run.log_every,
        seconds=progress.seconds,
        tokens=progress.tokens,
        flops=flops,
        peak=measure_peak(accelerator.device, recipe.train.precision) * accelerator.num_processes,
        adviser=Adviser(
            total_steps=total_steps,
            unigram=None,
            num_workers=None,
            free_memory=lambda: free_memory(accelerator.device),
            memory_remedy="a smaller train.micro_batch or data.max_length needs less",
        ),
        track=lambda values, step: accelerator.log({f"seed-{seed}/{k}": v for k, v in values.items()}, step=step),
    )
    eval_every = max(1, math.ceil(len(inputs.rows["train"]) / inputs.batch) // recipe.eval.per_epoch)
    score_name = main_score(inputs.labeled)
    with watch:
        watch.say(_greeting(recipe, inputs, seed, progress.step))
        for step, batches in watch.timed(steps):
            if recipe.train.patience and progress.stale >= recipe.train.patience:
                watch.say(f"stopped early: no better {score_name} in {progress.stale} evaluations")
                break
            share = lr_share(step, total_steps, recipe.optim)
            set_lr(optimizers, share)
            result = train_step(
                model,
                optimizers,
                batches,
                accelerator,
                seed=seed,
                step=step,
                clip_norm=recipe.train.clip_norm,
                stop=lambda: bool(signals.number),
            )
            watch.step(step, result, recipe.optim.lr * share)
            progress.finish_step(result, watch, recipe.train.max_bad_steps)

            last = progress.step == total_steps
            evaluated = bool(inputs.rows["dev"]) and not result.stop and (last or progress.step % eval_every == 0)
            if evaluated:
                with watch.paused():
                    scores, _ = evaluate(recipe, inputs, "dev", model, accelerator)
                    watch.record("dev", progress.step, scores, score_sentence(progress.step, "dev", scores))
                progress.note_score(scores[score_name])
            if last or evaluated or result.stop or progress.step % recipe.run.save_every == 0:
                with watch.paused():
                    save(folder, asdict(progress), model, optimizers, accelerator, recipe.run.keep)
            if result.stop:
                watch.say(f"stopped after step {progress.step} of seed {seed}; the same command goes on from here")
                return signals.exit_code

        if progress.best_step is not None and progress.best_step != progress.step:
            best = load_checkpoint(folder / CHECKPOINTS / f"step-{progress.best_step:08d}")
            restore_state(model, (), {**best.tensors, "optimizer": {}})
        finish_seed(recipe, inputs, seed, progress, model, accelerator, watch)
    return 0


def _is_done(folder: Path) -> bool:
    return (folder / SCORES).is_file() and (folder / EXPORT).is_dir()


def _greeting(recipe: FinetuneRecipe, inputs: Inputs, seed: int, step: int) -> str:
    start = f"going on from step {step} of" if step else "training"
    origin = f"from {recipe.model.init}" if recipe.model.init else f"from scratch, shaped like {recipe.model.like}"
    longer = len(inputs.rows["train"]) - len(inputs.labeled.train)
    windows = f" ({longer:,} further windows of long ones)" if longer else ""
    return (
        f"seed {seed}: {start} {inputs.total_steps} steps of {inputs.batch}, {origin}; "
        f"{len(inputs.labeled.train):,} sentences{windows}, {len(inputs.labeled.labels)} labels"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
