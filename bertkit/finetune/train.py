"""A fine-tuning recipe enters; a tagger or text classifier leaves for each seed, the best of them as the run's export.

Started again with the same recipe it resumes from the newest checkpoint of the seed it was at, to the same weights
bit for bit: rows, dropout and rates are functions of the seed and the step.
"""

import math
from pathlib import Path

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
from bertkit.run.checkpoint import load_checkpoint, resume, save
from bertkit.run.folder import CHECKPOINTS, EXPORT, check_facts, make_places
from bertkit.run.log import RunLog
from bertkit.run.loop import StepRules, run_steps
from bertkit.run.optim import build_optimizers
from bertkit.run.peak import count_flops, share_of_peak
from bertkit.run.ranks import wrap
from bertkit.run.start import Run, start_run
from bertkit.run.state import LoopState, restore_state
from data_pipelines.masks.plan import Plan


def finetune(recipe: FinetuneRecipe) -> int:
    """Train every seed as the recipe says, from the start or from where it stopped. Returns the exit code."""
    folder = Path(recipe.run.dir)
    check_start(recipe)
    given = find_given(recipe)
    labeled = read_labeled(recipe.task, recipe.data)
    check_labels(recipe, given, labeled.labels)
    with start_run(folder, recipe) as run:
        start = find_start(recipe, given, labeled, run.say)
        check_facts(folder, start.facts(labeled))
        for note in labeled.notes:
            run.say(note)
        if all(_is_done(seed_folder(recipe, seed)) for seed in recipe.run.seeds) and _is_done(folder):
            seeds = f"seed{'s' if len(recipe.run.seeds) > 1 else ''} {', '.join(map(str, recipe.run.seeds))}"
            run.say(f"{folder} is finished: {seeds}; the model is in {folder / EXPORT}")
        accelerator = run.connect(recipe.train.precision, recipe.run.trackers)
        inputs = prepare(recipe, labeled, start, accelerator)
        for seed in recipe.run.seeds:
            exit_code = train_seed(recipe, inputs, seed, run)
            if exit_code:
                return exit_code
        if accelerator.is_main_process:
            results = summarise(recipe, inputs)
            print_results(results)
        accelerator.wait_for_everyone()
    return 0


def train_seed(recipe: FinetuneRecipe, inputs: Inputs, seed: int, run: Run) -> int:
    """Build or resume, loop over the steps, take the best step, score it, export it."""
    folder, total_steps, accelerator = seed_folder(recipe, seed), inputs.total_steps, run.accelerator
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
    trainable = wrap(accelerator, bare, optimizers)
    state = resume(folder, trainable, LoopState())

    def exhausted() -> bool:
        """Whether patience is at its end."""
        return bool(recipe.train.patience) and state.stale >= recipe.train.patience

    plan = Plan(len(inputs.rows["train"]), inputs.batch, seed)
    batches_of_steps = training_steps(
        inputs.rows["train"],
        inputs.answers,
        plan,
        first_step=state.step,
        last_step=state.step if exhausted() else total_steps,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        micro_batch=recipe.train.micro_batch,
    )
    rules = StepRules(total_steps=total_steps, seed=seed, optim=recipe.optim, train=recipe.train)
    eval_every = max(1, math.ceil(len(inputs.rows["train"]) / inputs.batch) // recipe.eval.per_epoch)
    score_name = main_score(inputs.labeled)
    with RunLog(
        folder if accelerator.is_main_process else None,
        state,
        total_steps=total_steps,
        log_every=recipe.run.log_every,
        share_of_peak=share_of_peak(flops, accelerator, recipe.train.precision),
        adviser=Adviser(
            total_steps=total_steps,
            unigram=None,
            num_workers=None,
            free_memory=lambda: free_memory(accelerator.device),
            memory_remedy="a smaller train.micro_batch or data.max_length needs less",
        ),
        track=lambda values, step: accelerator.log({f"seed-{seed}/{k}": v for k, v in values.items()}, step=step),
    ) as log:
        log.say(_greeting(recipe, inputs, seed, state.step))
        for result in run_steps(trainable, batches_of_steps, state, rules, log, run.asked_to_stop):
            last = state.step == total_steps
            evaluated = bool(inputs.rows["dev"]) and not result.stop and (last or state.step % eval_every == 0)
            if evaluated:
                scores, _ = evaluate(recipe, inputs, "dev", trainable.model, accelerator)
                log.record("dev", state.step, scores, score_sentence(state.step, "dev", scores))
                state.note_score(scores[score_name])
            if last or evaluated or result.stop or state.step % recipe.run.save_every == 0:
                save(folder, state, trainable, recipe.run.keep)
            if result.stop:
                log.say(f"stopped after step {state.step} of seed {seed}; the same command resumes from here")
                return run.exit_code
            if exhausted() and not last:
                break

        if state.step < total_steps:
            log.say(f"stopped early: no better {score_name} in {state.stale} evaluations")
        if state.best_step is not None and state.best_step != state.step:
            best = load_checkpoint(folder / CHECKPOINTS / f"step-{state.best_step:08d}")
            restore_state(trainable.model, (), {**best.tensors, "optimizer": {}})
        finish_seed(recipe, inputs, seed, state, trainable.model, accelerator, log)
    return 0


def _is_done(folder: Path) -> bool:
    return (folder / SCORES).is_file() and (folder / EXPORT).is_dir()


def _greeting(recipe: FinetuneRecipe, inputs: Inputs, seed: int, step: int) -> str:
    start = f"resuming from step {step} of" if step else "training"
    origin = f"from {recipe.model.init}" if recipe.model.init else f"from scratch, shaped like {recipe.model.like}"
    longer = len(inputs.rows["train"]) - len(inputs.labeled.train)
    windows = f" ({longer:,} further windows of long ones)" if longer else ""
    return (
        f"seed {seed}: {start} {inputs.total_steps} steps of {inputs.batch}, {origin}; "
        f"{len(inputs.labeled.train):,} sentences{windows}, {len(inputs.labeled.labels)} labels"
    )
