"""A fine-tuning recipe enters; a tagger or text classifier leaves for each seed, the best of them as the run's export.

Started again with the same recipe it goes on from the newest checkpoint of the seed it was at, to the same weights
bit for bit: rows, dropout and rates are functions of the seed and the step.
"""

import contextlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from bertkit.finetune.answers import predict_labels
from bertkit.finetune.batches import LabeledBatch, training_steps
from bertkit.finetune.card import tagger_card, tagger_settings
from bertkit.finetune.config import MAY_CHANGE, FinetuneRecipe
from bertkit.finetune.data import Labeled, known_words, read_labeled
from bertkit.finetune.looking import print_results, score_sentence
from bertkit.finetune.metrics import mean_and_deviation
from bertkit.finetune.scoring import baseline_scores, looked_at, main_score, scores_of
from bertkit.finetune.start import Head, Start, find_start
from bertkit.finetune.windows import Frame, Row, WordEncoder, text_rows, word_rows
from bertkit.model import Bert
from bertkit.training import durable
from bertkit.training.advice import Adviser, free_memory
from bertkit.training.checkpoint import load_checkpoint
from bertkit.training.export import export_model, write_folder
from bertkit.training.lock import locked
from bertkit.training.optim import build_optimizers, set_lr
from bertkit.training.peak import count_flops, measure_peak
from bertkit.training.ranks import agree_on, start_accelerator, wrap
from bertkit.training.resume import resume, save
from bertkit.training.run_folder import (
    CHECKPOINTS,
    EXPORT,
    check_batch,
    check_facts,
    check_recipe,
    read_facts,
    write_facts,
    write_recipe,
)
from bertkit.training.schedule import lr_share
from bertkit.training.state import gather_state, restore_state
from bertkit.training.step import train_step
from bertkit.training.stopping import StopSignals
from bertkit.training.watch import Watch
from data_pipelines.plan import Plan
from data_pipelines.tag_schemes import inside_of
from data_pipelines.tagged import Sentence

# K labels

SCORES = "scores.json"


def finetune(recipe: FinetuneRecipe) -> int:
    """Train every seed as the recipe says, from the start or from where it stopped. Returns the exit code."""
    torch.set_flush_denormal(True)
    folder = Path(recipe.run.dir)
    first_rank = os.environ.get("RANK", "0") == "0"
    say = _say if first_rank else lambda text: None
    check_batch(recipe.train.global_batch)
    check_recipe(folder, recipe, MAY_CHANGE)
    labeled = read_labeled(recipe.task, recipe.data)
    with contextlib.ExitStack() as until_exit:
        if first_rank:
            until_exit.enter_context(locked(folder / ".lock"))
            write_recipe(folder, recipe)
        start = find_start(recipe, labeled, say)
        check_facts(folder, start.facts(labeled))
        for note in labeled.notes:
            say(note)
        signals = until_exit.enter_context(StopSignals())
        accelerator = start_accelerator(folder, recipe.train.precision, recipe.run.trackers)
        until_exit.callback(accelerator.end_training)
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


class Inputs(NamedTuple):
    """What all seeds share."""

    labeled: Labeled
    start: Start
    rows: dict[str, list[Row]]
    """Of train, dev and test."""
    answers: list[np.ndarray]
    """The labels at each training row's places."""
    known: set[str]
    """Words of the training data."""
    max_length: int
    batch: int
    total_steps: int

    def sentences(self, part: str) -> list[Sentence]:
        return getattr(self.labeled, part)


def prepare(recipe: FinetuneRecipe, labeled: Labeled, start: Start, accelerator: Accelerator) -> Inputs:
    """Words to pieces to rows, once for all seeds, and how many steps they make."""
    config = start.build(recipe.run.seeds[0]).config
    max_length = min(recipe.data.max_length, config.max_position_embeddings)
    rows = {
        part: make_rows(start, recipe.task, getattr(labeled, part), max_length, pieces)
        for part, pieces in (("train", recipe.data.pieces), ("dev", "first"), ("test", "first"))
    }
    number = {label: index for index, label in enumerate(labeled.labels)}
    answers = [_answers(row, labeled.train[row.sentence], number) for row in rows["train"]]

    facts = agree_on(accelerator, read_facts(Path(recipe.run.dir)))
    if facts is None:
        ranks = accelerator.num_processes
        # A step of more rows than there are would show one sentence twice; few sentences make small steps.
        batch = min(recipe.train.global_batch, math.ceil(len(rows["train"]) / ranks) * ranks)
        steps = math.ceil(recipe.train.epochs * len(rows["train"]) / batch)
        facts = {**start.facts(labeled), "batch": batch, "total_steps": steps}
        if accelerator.is_main_process:
            write_facts(Path(recipe.run.dir), facts)
    known = known_words(labeled.train)
    return Inputs(labeled, start, rows, answers, known, max_length, int(facts["batch"]), int(facts["total_steps"]))


def make_rows(start: Start, task: str, sentences: list[Sentence], max_length: int, pieces: str) -> list[Row]:
    frame = Frame.of(start.tokenizer)
    encoded = WordEncoder(start.tokenizer)([sentence.words for sentence in sentences])
    if task == "classification":
        return [row for index, one in enumerate(encoded) for row in text_rows(one, index, frame, max_length)]
    return [row for index, one in enumerate(encoded) for row in word_rows(one, index, frame, max_length, pieces)]


@dataclass
class Progress:
    """All that the loop remembers beside weights and moments."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    bad_steps: int = 0
    best_step: int | None = None
    best_score: float | None = None
    stale: int = 0
    """Evaluations since the best one."""


class Learner(nn.Module):
    """A model together with its loss: what the optimizer step calls."""

    weights_K: Tensor | None

    def __init__(self, model: Head, weights_K: Tensor | None):
        super().__init__()
        self.model = model
        self.register_buffer("weights_K", weights_K, persistent=False)

    def forward(self, batch: LabeledBatch) -> Tensor:
        """Cross-entropy summed over the batch's answers."""
        return F.cross_entropy(self.target_logits(batch), batch.target_ids, weight=self.weights_K, reduction="sum")

    def target_logits(self, batch: LabeledBatch) -> Tensor:
        return self.model.target_logits(batch)


def train_seed(
    recipe: FinetuneRecipe, inputs: Inputs, seed: int, accelerator: Accelerator, signals: StopSignals
) -> int:
    """Build or resume, loop over the steps, take the best step, score it, export it."""
    folder, total_steps, labels = seed_folder(recipe, seed), inputs.total_steps, inputs.labeled.labels
    if (folder / SCORES).is_file() and (folder / EXPORT).is_dir():
        return 0
    folder.mkdir(exist_ok=True)
    bare = Learner(inputs.start.build(seed), _class_weights(recipe, inputs))
    if recipe.model.freeze:
        bare.model.encoder.requires_grad_(False)
    flops = count_flops(bare, len(labels), bare.model.config.hidden_size)
    optimizers = build_optimizers(bare, recipe.optim, layer_speed(bare.model, recipe.optim.layer_decay))
    model, optimizers = wrap(accelerator, bare, optimizers)
    model.train()
    progress = Progress(**resume(folder, model, optimizers, accelerator))

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
            unigram=math.inf,  # there is no level of word frequencies here to stay at
            num_workers=0,
            free_memory=lambda: free_memory(accelerator.device),
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
                stop=bool(signals.number),
            )
            watch.step(step, result, recipe.optim.lr * share)
            progress.step, progress.seconds, progress.tokens = step + 1, watch.seconds, watch.tokens
            progress.bad_steps = 0 if result.applied else progress.bad_steps + 1
            if progress.bad_steps >= recipe.train.max_bad_steps:
                raise ValueError(
                    f"loss or gradients were not finite in {progress.bad_steps} steps in a row, up to {step + 1}; "
                    "lower optim.lr, lengthen optim.warmup or lower train.clip_norm, and start in another run.dir"
                )

            last = progress.step == total_steps
            evaluated = bool(inputs.rows["dev"]) and not result.stop and (last or progress.step % eval_every == 0)
            if evaluated:
                with watch.paused():
                    scores, _ = evaluate(recipe, inputs, "dev", model, accelerator)
                    watch.record("dev", progress.step, scores, score_sentence(progress.step, "dev", scores))
                progress.stale += 1
                if progress.best_score is None or scores[score_name] > progress.best_score:
                    progress.best_step, progress.best_score, progress.stale = progress.step, scores[score_name], 0
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
    progress: Progress,
    model: nn.Module,
    accelerator: Accelerator,
    watch: Watch,
) -> None:
    """Score the chosen weights on dev and test, look at the mistakes, write the export and then the scores."""
    found: dict[str, Any] = {"seed": seed, "step": progress.best_step or progress.step, "seconds": progress.seconds}
    for part in ("dev", "test"):
        if inputs.rows[part]:
            scores, predicted = evaluate(recipe, inputs, part, model, accelerator)
            found[part] = scores | looked_at(inputs.sentences(part), predicted, recipe.eval.worst)
            watch.record(f"best_{part}", found["step"], scores, f"best: {score_sentence(found['step'], part, scores)}")
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
    write_folder(folder / EXPORT, lambda unfinished: shutil.copytree(source, unfinished))
    durable.replace_file(folder / SCORES, durable.json_bytes(results))
    results["export"] = str(folder / EXPORT)
    return results


def seed_folder(recipe: FinetuneRecipe, seed: int) -> Path:
    return Path(recipe.run.dir) / f"seed-{seed}"


def layer_speed(model: Head, decay: float) -> Callable[[str], float]:
    """The share of the learning rate each parameter gets, by its name: the head all of it, each layer below less."""
    depth = model.config.num_hidden_layers
    top = {"final_norm"} if not isinstance(model.encoder, Bert) else set()

    def speed(name: str) -> float:
        _, part, *rest = name.split(".")  # model.head... or model.encoder.layers.3...
        if part == "head" or rest[0] in top:
            return 1.0
        return decay ** (depth - int(rest[1]) if rest[0] == "layers" else depth + 1)

    return speed


def _answers(row: Row, sentence: Sentence, number: dict[str, int]) -> np.ndarray:
    """The labels at a row's places; a word's later pieces go on what its first one began."""
    assert sentence.tags is not None
    labels = []
    before = -1
    for word in row.words.tolist():
        tag = sentence.tags[word]
        labels.append(number[inside_of(tag) if word == before and inside_of(tag) in number else tag])
        before = word
    return np.array(labels, np.int64)


def _class_weights(recipe: FinetuneRecipe, inputs: Inputs) -> Tensor | None:
    """More for rare labels, by the root of their rarity, so that the mean weight of an answer is 1."""
    if recipe.train.class_weights == "none":
        return None
    counts_K = np.bincount(np.concatenate(inputs.answers), minlength=len(inputs.labeled.labels))
    weights_K = 1 / np.sqrt(np.maximum(counts_K, 1))
    return torch.tensor(weights_K * counts_K.sum() / (weights_K * counts_K).sum(), dtype=torch.float32)


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
