"""Texts written a second: left to right with and without kept keys and values, and in parallel in a few passes."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from bertkit.bench.measure import Told, announce, compare, interleaved
from bertkit.finetune.batches import asking, collate
from bertkit.finetune.tasks.rewrite import REWRITE
from bertkit.finetune.windows import Row as TextRow
from bertkit.finetune.windows import RowForm, WordEncoder
from bertkit.finetune.writing.left_to_right import Search, write_left_to_right
from bertkit.finetune.writing.parallel import write_parallel
from bertkit.finetune.writing.script import (
    BETWEEN,
    LEFT_TO_RIGHT,
    PARALLEL,
    Script,
    make_script,
    source_rows,
    with_prefix,
)
from bertkit.model import BertConfig, MaskedLM, build_encoder
from data_pipelines.vocab.units import unit_tokenizer

_BATCH = 32
_ENDS = (2, 5)
"""Slots before and after a source, where others stand between its tokens: as many as German forms need."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def bench_write(against: str | None, quick: bool) -> Iterator[Told]:
    """Sources of 10 and of 100 characters, each rewritten in as many; random weights that never end a text."""
    yield f"BERT 4×128 on characters, {_BATCH} texts at once; float32, {torch.get_num_threads()} threads."
    yield "Theirs, left to right: ours without keeping keys and values. Checked before timing: the same texts."
    for length in (10, 30 if quick else 100):
        ways = _ways(length)
        rounds = 1 if quick else 3
        name = f"left to right, {length} characters"
        announce(name)
        measured = {"ours": ways["cached"], "theirs": ways["uncached"]}
        yield compare(name, _BATCH, "texts/s", interleaved(measured, rounds))
        for way in (way for way in ways if "parallel" in way):
            name = f"{way}, {length} characters"
            announce(name)
            yield compare(name, _BATCH, "texts/s", interleaved({"ours": ways[way]}, rounds))


def _ways(length: int) -> dict[str, Callable[[], Any]]:
    tokenizer = unit_tokenizer("character", [_LETTERS])
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=512,
    )
    model = MaskedLM(build_encoder(config, 0), 0).eval()
    form = RowForm.of(tokenizer, config, 512)
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list(_LETTERS), length)) for _ in range(_BATCH)]
    sentences = [REWRITE.reader({})(text) for text in texts]
    settings = {"extra": 0, "units": "character"}
    scripts = {order: make_script(tokenizer, form, {"order": order, **settings}) for order in (LEFT_TO_RIGHT, PARALLEL)}
    scripts[BETWEEN] = make_script(tokenizer, form, {"order": PARALLEL, BETWEEN: _ENDS, **settings})
    with torch.no_grad():
        model.encoder.tokens.weight.mul_(30)  # near a tie, rounding would decide
        assert model.head.decoder_bias is not None
        model.head.decoder_bias[scripts[PARALLEL].end] = -1e4
    rows = {order: source_rows(script, sentences, WordEncoder(tokenizer), form) for order, script in scripts.items()}
    ask = asking(model.target_logits, "cpu")
    left = (scripts[LEFT_TO_RIGHT], rows[LEFT_TO_RIGHT])
    cached = partial(_cached, ask, *left)
    uncached = partial(_uncached, ask, *left)
    if cached() != uncached():
        raise RuntimeError("texts differ with and without kept keys and values")
    parallel = {
        f"{name} in {passes} passes": partial(write_parallel, ask, scripts[key], rows[key], passes)
        for key, name in ((PARALLEL, "parallel"), (BETWEEN, "parallel between tokens"))
        for passes in (1, 4, 10)
    }
    return {"cached": cached, "uncached": uncached, **parallel}


def _cached(ask: asking, script: Script, rows: Sequence[TextRow]) -> list[list[int]]:
    return [drafts[0].ids for drafts in write_left_to_right(ask, script, rows, Search())]


@torch.inference_mode()
def _uncached(ask: asking, script: Script, rows: Sequence[TextRow]) -> list[list[int]]:
    """Every token with a pass over all that was written so far."""
    written: list[list[int]] = [[] for _ in rows]
    for _ in range(rows[0].room - 1):
        grown = [with_prefix(script, row, np.array(ids, np.int64)) for row, ids in zip(rows, written, strict=True)]
        logits = ask.compute(collate([row._replace(index_M=row.index_M[-1:]) for row in grown]))
        logits[:, script.never_written] = -torch.inf
        for ids, token in zip(written, logits.argmax(dim=1).tolist(), strict=True):
            ids.append(token)
    return written
