"""A recipe enters, a trained and exported encoder leaves. Read it from top to bottom: it runs in that order.

Started again with the same recipe it goes on from the newest checkpoint, to the same weights bit for bit: rows,
masks, dropout and rates are functions of the seed and the step. So a checkpoint holds weights, moments and a few
counters, and nothing else needs to be remembered.
"""

import contextlib
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import nn

from bertkit.config.fields import build
from bertkit.config.recipe import Recipe
from bertkit.evaluate.held_out import HeldOut
from bertkit.evaluate.masked_loss import unigram_loss
from bertkit.pretrain.budget import decide_steps
from bertkit.pretrain.build import build_model, warm_start
from bertkit.pretrain.inputs import Inputs, prepare_inputs
from bertkit.run.advice import Adviser, free_memory
from bertkit.run.checkpoint import checkpoints
from bertkit.run.export import export_model, model_card
from bertkit.run.folder import (
    CHECKPOINTS,
    EXPORT,
    check_facts,
    check_start,
    make_places,
    read_facts,
    write_facts,
    write_recipe,
)
from bertkit.run.heartbeat import Company
from bertkit.run.lock import locked
from bertkit.run.log import Watch
from bertkit.run.loop_state import Progress
from bertkit.run.optim import build_optimizers, set_lr
from bertkit.run.peak import count_flops, measure_peak
from bertkit.run.process import make_ready
from bertkit.run.ranks import agree_on, start_accelerator, wrap
from bertkit.run.resume import resume, save
from bertkit.run.schedule import batch_stages, lr_share
from bertkit.run.signals import StopSignals
from bertkit.run.state import gather_state, restore_state
from bertkit.run.step import train_step
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan


def pretrain(recipe: Recipe) -> int:
    """Train as the recipe says, from the start or from where it stopped. Returns the exit code."""
    make_ready()
    folder = Path(recipe.run.dir)
    first_rank = os.environ.get("RANK", "0") == "0"
    check_start(recipe)
    with contextlib.ExitStack() as until_exit:
        if first_rank:
            until_exit.enter_context(locked(folder / ".lock"))
            write_recipe(folder, recipe)
            make_places(folder)
        company = until_exit.enter_context(Company())
        inputs = prepare_inputs(recipe, loud=first_rank)
        check_facts(folder, inputs.facts())
        signals = until_exit.enter_context(StopSignals())
        accelerator = start_accelerator(folder, recipe.train.precision, recipe.run.trackers)
        until_exit.callback(accelerator.end_training)
        company.met()
        return train(recipe, inputs, accelerator, signals)


def train(recipe: Recipe, inputs: Inputs, accelerator: Accelerator, signals: StopSignals) -> int:
    """Build or resume, loop over the steps, export."""
    folder = Path(recipe.run.dir)
    bare = build_model(recipe, inputs)
    # A run that goes on has its embeddings in the checkpoint.
    start_seconds = 0.0 if checkpoints(folder / CHECKPOINTS) else warm_start(bare, recipe, inputs)
    bare.encoder.gradient_checkpointing = recipe.train.gradient_checkpointing
    num_parameters = sum(param.numel() for param in bare.parameters())
    flops = count_flops(bare)
    model, optimizers = wrap(accelerator, bare, build_optimizers(bare, recipe.optim), recipe.train.compile)
    model.train()

    facts = agree_on(accelerator, read_facts(folder))
    if facts is None:
        total_steps = decide_steps(recipe, inputs, model, optimizers, accelerator, start_seconds)
        facts = inputs.facts() | {"total_steps": total_steps}
        if accelerator.is_main_process:
            write_facts(folder, facts)
    total_steps = int(facts["total_steps"])
    progress = build(Progress, {"seconds": start_seconds} | resume(folder, model, optimizers, accelerator))
    if progress.step >= total_steps and (folder / EXPORT).is_dir():
        if accelerator.is_main_process:
            _say(f"{folder} is finished: {progress.step} steps; the model is in {folder / EXPORT}")
        return 0

    held_out, old_domain = (
        HeldOut(
            rows,
            inputs.tokenizer,
            inputs.train.token_counts(),
            mask_rate=recipe.eval.mask_rate,
            max_rows=recipe.eval.max_rows,
            micro_batch=recipe.train.micro_batch,
        )
        for rows in (inputs.validation, inputs.old_domain)
    )
    plan = Plan(len(inputs.train), batch_stages(total_steps, recipe.train), recipe.run.seed)
    collator = MaskingCollator.from_config(
        inputs.tokenizer, recipe.mask, seed=recipe.run.seed, total_steps=total_steps, layout="packed"
    )
    batches_of_steps = load_steps(
        inputs.train,
        plan,
        collator,
        first_step=progress.step,
        last_step=total_steps,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        micro_batch=recipe.train.micro_batch,
        num_workers=recipe.run.num_workers,
    )
    adviser = Adviser(
        total_steps=total_steps,
        first_step=progress.step,
        unigram=unigram_loss(inputs.train.token_counts()),
        num_workers=recipe.run.num_workers,
        free_memory=lambda: free_memory(accelerator.device),
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
        adviser=adviser,
        track=lambda values, step: accelerator.log(values, step=step),
    )
    with watch:
        watch.say(_greeting(recipe, inputs, num_parameters, progress.step, total_steps, accelerator.num_processes))
        if progress.step == 0:
            evaluate_and_record(old_domain, model, accelerator, watch, 0, "old_domain")
        scores = None
        for step, batches in watch.timed(batches_of_steps):
            share = lr_share(step, total_steps, recipe.optim)
            set_lr(optimizers, share)
            result = train_step(
                model,
                optimizers,
                batches,
                accelerator,
                seed=recipe.run.seed,
                step=step,
                clip_norm=recipe.train.clip_norm,
                stop=lambda: bool(signals.number),
            )
            watch.step(step, result, recipe.optim.lr * share)
            progress.finish_step(result, watch, recipe.train.max_bad_steps)

            last, improved = progress.step == total_steps, False
            if not result.stop and (last or _due(progress.step, recipe.eval.every)):
                with watch.paused():
                    scores = evaluate_and_record(held_out, model, accelerator, watch, progress.step, "eval")
                improved = scores is not None and progress.note_score(-scores["loss"])
            if last or improved or result.stop or _due(progress.step, recipe.run.save_every):
                with watch.paused():
                    save(folder, asdict(progress), model, optimizers, accelerator, recipe.run.keep)
            if result.stop:
                watch.say(f"stopped after step {progress.step}; the same command goes on from here")
                return signals.exit_code

        if scores is None:
            scores = evaluate_and_record(held_out, model, accelerator, watch, progress.step, "eval")
        evaluate_and_record(old_domain, model, accelerator, watch, progress.step, "old_domain")
        weights = gather_state(model, ())
        if accelerator.is_main_process:
            trained = build_model(recipe, inputs)
            restore_state(trained, (), weights)
            epochs = plan.rows_before_step(progress.step) / len(inputs.train)
            card = model_card(recipe, asdict(progress) | {"epochs": epochs, "parameters": num_parameters}, scores)
            export_model(folder / EXPORT, trained, inputs.tokenizer, card)
        watch.say(f"done after {progress.seconds / 60:.1f} minutes of training; the model is in {folder / EXPORT}")
        accelerator.wait_for_everyone()
    return 0


def evaluate_and_record(
    held_out: HeldOut, model: nn.Module, accelerator: Accelerator, watch: Watch, step: int, kind: str
) -> dict[str, Any] | None:
    """Scores on held-out rows, written down and told; None where there are no rows."""
    scores = held_out.scores(model, accelerator)
    if scores is not None:
        numbers = "loss {loss:.4f}  perplexity {perplexity:.2f}  accuracy {accuracy:.1%}".format(**scores)
        watch.record(kind, step, scores, f"step {step}  {kind.replace('_', ' ')}: {numbers}")
    return scores


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _greeting(
    recipe: Recipe, inputs: Inputs, num_parameters: int, step: int, total_steps: int, num_processes: int
) -> str:
    start = f"going on from step {step} of" if step else "training"
    held_out = f"{len(inputs.validation):,} held out" if len(inputs.validation) else "none held out, so no evaluation"
    return (
        f"{start} {total_steps} steps of {recipe.train.global_batch} rows in {recipe.run.dir}: "
        f"{len(inputs.train):,} rows to train on, {held_out}; {num_parameters:,} parameters, "
        f"{num_processes} process{'es' if num_processes > 1 else ''}"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
