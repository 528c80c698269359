"""A recipe enters, a trained and exported encoder leaves. Read it from top to bottom: it runs in that order.

Started again with the same recipe it resumes from the newest checkpoint, to the same weights bit for bit: rows,
masks, dropout and rates are functions of the seed and the step. So a checkpoint holds weights, moments and a few
counters, and nothing else needs to be remembered.
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertkit.config.recipe import Recipe
from bertkit.evaluate.held_out import HeldOut
from bertkit.evaluate.masked_loss import unigram_loss
from bertkit.pretrain.budget import decide_steps
from bertkit.pretrain.build import build_model, warm_start
from bertkit.pretrain.checks import check_pretraining
from bertkit.pretrain.inputs import Inputs, prepare_inputs
from bertkit.run.advice import Adviser, free_memory
from bertkit.run.checkpoint import checkpoints, resume, save
from bertkit.run.export import export_model, model_card
from bertkit.run.folder import CHECKPOINTS, EXPORT, check_facts, make_places, read_facts, write_facts
from bertkit.run.log import RunLog
from bertkit.run.loop import StepRules, run_steps
from bertkit.run.optim import build_optimizers
from bertkit.run.peak import count_flops, share_of_peak
from bertkit.run.ranks import Trainable, agree_on, evaluating, wrap
from bertkit.run.schedule import batch_stages
from bertkit.run.start import Run, start_run
from bertkit.run.state import LoopState, gather_state, restore_state
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan
from data_pipelines.rows.shards import Rows


def pretrain(recipe: Recipe) -> int:
    """Train as the recipe says, from the start or from where it stopped. Returns the exit code."""
    check_pretraining(recipe)
    with start_run(Path(recipe.run.dir), recipe) as run:
        if run.is_first:
            make_places(run.folder)
        inputs = prepare_inputs(recipe, loud=run.is_first)
        check_facts(run.folder, inputs.facts())
        run.connect(recipe.train.precision, recipe.run.trackers)
        return train(recipe, inputs, run)


def train(recipe: Recipe, inputs: Inputs, run: Run) -> int:
    """Build or resume, loop over the steps, export."""
    bare = build_model(recipe, inputs)
    # A resumed run has its embeddings in the checkpoint.
    start_seconds = 0.0 if checkpoints(run.folder / CHECKPOINTS) else warm_start(bare, recipe, inputs)
    bare.encoder.gradient_checkpointing = recipe.train.gradient_checkpointing
    num_parameters, flops = sum(param.numel() for param in bare.parameters()), count_flops(bare)
    trainable = wrap(run.accelerator, bare, build_optimizers(bare, recipe.optim), recipe.train.compile)
    total_steps = _fixed_steps(recipe, inputs, trainable, run.folder, start_seconds)
    state = resume(run.folder, trainable, LoopState(seconds=start_seconds))
    if state.step >= total_steps and (run.folder / EXPORT).is_dir():
        run.say(f"{run.folder} is finished: {state.step} steps; the model is in {run.folder / EXPORT}")
        return 0

    held_out, old_domain = (_held_out(recipe, inputs, rows) for rows in (inputs.validation, inputs.old_domain))
    plan = Plan(len(inputs.train), batch_stages(total_steps, recipe.train), recipe.run.seed)
    batches_of_steps = _batches(recipe, inputs, plan, trainable, state.step, total_steps)
    rules = StepRules(total_steps=total_steps, seed=recipe.run.seed, optim=recipe.optim, train=recipe.train)
    with RunLog(
        run.folder if run.is_first else None,
        state,
        total_steps=total_steps,
        log_every=recipe.run.log_every,
        share_of_peak=share_of_peak(flops, run.accelerator, recipe.train.precision),
        adviser=_adviser(recipe, inputs, trainable, state.step, total_steps),
        track=lambda values, step: run.accelerator.log(values, step=step),
    ) as log:
        log.say(_greeting(recipe, inputs, num_parameters, state.step, total_steps, run.accelerator.num_processes))
        if state.step == 0:
            evaluate_and_record(old_domain, trainable, log, 0, "old_domain")
        scores = None
        for result in run_steps(trainable, batches_of_steps, state, rules, log, run.asked_to_stop):
            last, improved = state.step == total_steps, False
            if not result.stop and (last or _due(state.step, recipe.eval.every)):
                scores = evaluate_and_record(held_out, trainable, log, state.step, "eval")
                improved = scores is not None and state.note_score(-scores["loss"])
            if last or improved or result.stop or _due(state.step, recipe.run.save_every):
                save(run.folder, state, trainable, recipe.run.keep)
            if result.stop:
                log.say(f"stopped after step {state.step}; the same command resumes from here")
                return run.exit_code

        if scores is None:
            scores = evaluate_and_record(held_out, trainable, log, state.step, "eval")
        evaluate_and_record(old_domain, trainable, log, state.step, "old_domain")
        epochs = plan.rows_before_step(state.step) / len(inputs.train)
        facts = asdict(state) | {"epochs": epochs, "parameters": num_parameters}
        export(recipe, inputs, trainable, run.folder, model_card(recipe, facts, scores))
        log.say(f"done after {state.seconds / 60:.1f} minutes of training; the model is in {run.folder / EXPORT}")
        run.accelerator.wait_for_everyone()
    return 0


def _fixed_steps(recipe: Recipe, inputs: Inputs, trainable: Trainable, folder: Path, spent: float) -> int:
    """How many steps the run has: decided when it begins, and the same on every rank and at every resume."""
    facts = agree_on(trainable.accelerator, read_facts(folder))
    if facts is None:
        facts = inputs.facts() | {"total_steps": decide_steps(recipe, inputs, trainable, spent)}
        if trainable.accelerator.is_main_process:
            write_facts(folder, facts)
    return int(facts["total_steps"])


def _held_out(recipe: Recipe, inputs: Inputs, rows: Rows | None) -> HeldOut:
    return HeldOut(
        rows,
        inputs.tokenizer,
        inputs.train.token_counts(),
        mask_rate=recipe.eval.mask_rate,
        max_rows=recipe.eval.max_rows,
        micro_batch=recipe.train.micro_batch,
    )


def _batches(
    recipe: Recipe, inputs: Inputs, plan: Plan, trainable: Trainable, first_step: int, total_steps: int
) -> Iterator[tuple[int, list[PackedBatch]]]:
    collator = MaskingCollator.from_config(
        inputs.tokenizer, recipe.mask, seed=recipe.run.seed, total_steps=total_steps, layout="packed"
    )
    return load_steps(
        inputs.train,
        plan,
        collator,
        range(first_step, total_steps),
        rank=trainable.accelerator.process_index,
        world_size=trainable.accelerator.num_processes,
        micro_batch=recipe.train.micro_batch,
        num_workers=recipe.run.num_workers,
    )


def _adviser(recipe: Recipe, inputs: Inputs, trainable: Trainable, first_step: int, total_steps: int) -> Adviser:
    return Adviser(
        total_steps=total_steps,
        first_step=first_step,
        unigram=unigram_loss(inputs.train.token_counts()),
        num_workers=recipe.run.num_workers,
        free_memory=lambda: free_memory(trainable.accelerator.device),
    )


def evaluate_and_record(
    held_out: HeldOut, trainable: Trainable, log: RunLog, step: int, kind: str
) -> dict[str, Any] | None:
    """Scores on held-out rows, written down and told; None where there are no rows."""
    with evaluating(trainable) as evaluation:
        scores = held_out.scores(*evaluation, evaluation.sum_over_ranks)
    if scores is not None:
        numbers = "loss {loss:.4f}  perplexity {perplexity:.2f}  accuracy {accuracy:.1%}".format(**scores)
        log.record(kind, step, scores, f"step {step}  {kind.replace('_', ' ')}: {numbers}")
    return scores


def export(recipe: Recipe, inputs: Inputs, trainable: Trainable, folder: Path, card: str) -> None:
    """Write the trained model with its tokenizer and its card. All ranks take part."""
    weights = gather_state(trainable.model, ())
    if trainable.accelerator.is_main_process:
        trained = build_model(recipe, inputs)
        restore_state(trained, (), weights)
        export_model(folder / EXPORT, trained, inputs.tokenizer, card)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _greeting(
    recipe: Recipe, inputs: Inputs, num_parameters: int, step: int, total_steps: int, num_processes: int
) -> str:
    start = f"resuming from step {step} of" if step else "training"
    held_out = f"{len(inputs.validation):,} held out" if len(inputs.validation) else "none held out, so no evaluation"
    return (
        f"{start} {total_steps} steps of {recipe.train.global_batch} rows in {recipe.run.dir}: "
        f"{len(inputs.train):,} rows to train on, {held_out}; {num_parameters:,} parameters, "
        f"{num_processes} process{'es' if num_processes > 1 else ''}"
    )
