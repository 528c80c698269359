"""How long our recipe takes to reach the held-out loss at which transformers' example loop ends.

Theirs is the loop of its masked-language-model example with its defaults, written out: AdamW at 5e-5 with linear
decay, gradients clipped to 1, dropout, new masks for every batch. Both sides train on the same rows and are scored on
the same masked tokens of the same held-out rows. The clock runs while they train and load, not while they are scored.
Ours starts its clock before its model exists: counting neighbours and timing steps for the budget are included.
"""

import itertools
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.bench.generated import generated_documents
from bertkit.bench.measure import Row, Told, announce
from bertkit.config.recipe import Recipe, read_recipe
from bertkit.cpu import keep_freed_memory
from bertkit.evaluate.held_out import MASK_SEED
from bertkit.pretrain.budget import decide_steps
from bertkit.pretrain.data import PretrainingData, open_data
from bertkit.pretrain.objectives import OBJECTIVES
from bertkit.pretrain.start_model import build_model, warm_start
from bertkit.run.loop import StepRules, run_steps
from bertkit.run.optim import build_optimizers
from bertkit.run.ranks import evaluating, start_accelerator, wrap
from bertkit.run.schedule import batch_stages
from bertkit.run.state import LoopState
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan

# B rows, L padded length

_RECIPE = "modernbert-mini"
_MASK_RATE = 0.15


@dataclass(frozen=True, kw_only=True)
class Race:
    """How long theirs trains, how often ours is scored, and on how much."""

    their_steps: int = 300
    their_batch: int = 32
    held_out_share: float = 0.05
    """Of the documents."""
    held_out_rows: int = 1024
    """At most."""
    score_every: int = 5
    minutes: float = 2.0
    """Budget of ours, as in its recipe."""


class Finish(NamedTuple):
    loss: float
    seconds: float
    steps: int


def bench_race(against: str | None, quick: bool, corpus: str | None = None, race: Race | None = None) -> Iterator[Told]:
    """One row: seconds of theirs for its steps, and of ours until its held-out loss is as low."""
    if against is None:
        yield "A race needs an opponent: --against transformers."
        return
    race = race or (Race(their_steps=30, held_out_rows=128, minutes=0.5) if quick else Race())
    torch.set_flush_denormal(True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = _recipe(folder, corpus, quick, race)
        data = open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run)
        if not len(data.validation):
            raise ValueError("--corpus has too few documents to hold any out; a blank line separates documents")
        announce(f"race, {race.their_steps} steps of theirs")
        theirs = run_theirs(data, race)
        announce(f"race, ours to a held-out loss of {theirs.loss:.3f}")
        ours = run_ours(recipe, data, race, goal=theirs.loss)
    arrived = ours.loss <= theirs.loss
    yield Row(
        workload=f"race to a held-out loss of {theirs.loss:.3f}, 4×256 vocab {data.tokenizer.vocab_size}",
        ours=ours.seconds,
        theirs=theirs.seconds,
        ratio=theirs.seconds / ours.seconds if arrived else None,
        unit="s",
    )
    yield from (
        f"Theirs: {theirs.steps} steps of {race.their_batch}×{recipe.data.seq_len} of its example's loop end at a loss "
        f"of {theirs.loss:.4f}.",
        f"Ours: {_RECIPE} is at {ours.loss:.4f} after {ours.steps} steps"
        + ("." if arrived else ", the end of its budget: it did not reach that loss."),
        f"Both are scored on the same masked tokens of the same {_count(data, race)} held-out rows, off the clock.",
        f"{'Generated text' if corpus is None else corpus}: {data.train.num_tokens / 1e6:.1f} M tokens to train on; "
        f"{torch.get_num_threads()} threads. Each side ran once, theirs first.",
    )


def run_ours(recipe: Recipe, data: PretrainingData, race: Race, goal: float) -> Finish:
    """Train as the recipe says until the held-out loss is at most `goal`, or until the end."""
    keep_freed_memory()  # as `bertkit pretrain` does, and after theirs, which does not
    start = time.perf_counter()
    accelerator = start_accelerator(Path(recipe.run.dir), recipe.train.precision, [])
    objective = OBJECTIVES[recipe.train.objective](recipe, data)
    bare = build_model(recipe, data, objective)
    start_seconds = warm_start(bare, recipe, data)
    trainable = wrap(accelerator, bare, partial(build_optimizers, config=recipe.optim))
    total_steps = decide_steps(recipe, data, objective, trainable, start_seconds)
    plan = Plan(len(data.train), batch_stages(total_steps, recipe.train), recipe.run.seed)
    collator, steps = objective.make_collator(total_steps), range(total_steps)
    batches_of_steps = load_steps(data.train, plan, collator, steps, micro_batch=recipe.train.micro_batch)
    rules = StepRules(total_steps=total_steps, seed=recipe.run.seed, optim=recipe.optim, train=recipe.train)
    assert objective.make_scorer is not None
    score, loss = objective.make_scorer(data.validation), math.inf
    state = LoopState(seconds=time.perf_counter() - start)
    for _ in run_steps(trainable, batches_of_steps, state, rules):
        if state.step % race.score_every == 0 or state.step == total_steps:
            with evaluating(trainable) as evaluation:
                loss = score(evaluation)["loss"]
            if loss <= goal:
                break
    return Finish(loss, state.seconds, state.step)


def run_theirs(data: PretrainingData, race: Race) -> Finish:
    """The example's loop: its collator and model, its optimizer and schedule, in the order in which it does things."""
    import transformers

    tokenizer = _their_tokenizer(data)
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=data.tokenizer.vocab_size,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
            pad_token_id=data.tokenizer.special.pad_id,
        )
    ).train()
    batches: torch.utils.data.DataLoader = torch.utils.data.DataLoader(
        _Rows(data),  # type: ignore[arg-type]
        batch_size=race.their_batch,
        shuffle=True,
        drop_last=True,
        collate_fn=transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=_MASK_RATE),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, fused=True)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, race.their_steps)
    endless = itertools.chain.from_iterable(itertools.repeat(batches))
    start = time.perf_counter()
    for batch in itertools.islice(endless, race.their_steps):
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    seconds = time.perf_counter() - start
    model.eval()
    loss_at_end = held_out_loss(data, race, lambda ids, mask: model(ids, mask).logits)
    return Finish(loss_at_end, seconds, race.their_steps)


@torch.no_grad()
def held_out_loss(data: PretrainingData, race: Race, logits: Callable[[Tensor, Tensor], Tensor]) -> float:
    """Mean over the masked tokens of `HeldOut`, for a model that takes padded rows and a mask."""
    total = count = 0.0
    for ids_BL, mask_BL, labels_BL in padded_questions(data, race):
        loss = F.cross_entropy(logits(ids_BL, mask_BL).flatten(0, 1), labels_BL.flatten(), reduction="sum")
        total, count = total + float(loss), count + float((labels_BL != -100).sum())
    return total / count if count else math.nan


def padded_questions(data: PretrainingData, race: Race) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Ids, attention mask and labels (-100: not masked) of the held-out rows, masked as `HeldOut` masks them."""
    collator = MaskingCollator.from_config(data.tokenizer, MaskConfig(rate=_MASK_RATE), seed=MASK_SEED, layout="packed")
    for start in range(0, _count(data, race), race.their_batch):
        row_ids = np.arange(start, min(start + race.their_batch, _count(data, race)))
        rows = data.validation.gather(row_ids)
        batch = collator.collate_rows(rows, row_ids, np.zeros_like(row_ids), step=0)
        labels_T = torch.full_like(batch.input_ids, -100)
        labels_T[batch.target_index] = batch.target_ids
        lengths = np.diff(rows.row_starts).tolist()
        ids_BL, mask_BL, labels_BL = (
            torch.nn.utils.rnn.pad_sequence(values.split(lengths), batch_first=True, padding_value=padding)
            for values, padding in (
                (batch.input_ids, data.tokenizer.special.pad_id or 0),
                (torch.ones_like(batch.input_ids), 0),
                (labels_T, -100),
            )
        )
        yield ids_BL, mask_BL, labels_BL


class _Rows:
    """The training rows as examples for their collator."""

    def __init__(self, data: PretrainingData):
        self.rows = data.train

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.rows.gather(np.array([index])).ids_T}


def _recipe(folder: Path, corpus: str | None, quick: bool, race: Race) -> Recipe:
    if corpus is None:
        text = folder / "corpus.txt"
        text.write_text("\n\n".join(generated_documents(1_000_000 if quick else 16_000_000)), encoding="utf-8")
        corpus = str(text)
    recipe = read_recipe(_RECIPE, ["data.corpus=corpus", f"train.minutes={race.minutes}"])
    return replace(
        recipe,
        data=replace(
            recipe.data, corpus=[corpus], cache_dir=str(folder / "cache"), validation_share=race.held_out_share
        ),
        eval=replace(recipe.eval, mask_rate=_MASK_RATE, max_rows=race.held_out_rows),
        run=replace(recipe.run, dir=str(folder / "run")),
    )


def _their_tokenizer(data: PretrainingData) -> Any:
    import transformers

    special = data.tokenizer.special
    named = {"pad": special.pad_id, "unk": special.unk_id, "cls": special.cls_id, "sep": special.sep_id}
    named["mask"] = special.mask_id
    backend = data.tokenizer.backend
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{f"{name}_token": backend.id_to_token(index) for name, index in named.items() if index is not None},
    )


def _count(data: PretrainingData, race: Race) -> int:
    return min(len(data.validation), race.held_out_rows)
