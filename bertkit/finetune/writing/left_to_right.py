"""Writing token by token: the likeliest texts by beam search; with one beam it is greedy search.

A source is computed once; after that every step computes one token of each text, with the keys and values of all
earlier ones kept.
"""

# N sources, B beams of each, S texts that grow (N × B), V vocabulary

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertkit.finetune.batches import asking, collate
from bertkit.finetune.windows import Ask, Row, by_length
from bertkit.finetune.writing.drafts import Draft
from bertkit.finetune.writing.script import Script, target_position
from bertkit.model.cache import Cache

Compute = Callable[[Any], Tensor]
"""The logits (M, V) at the targets of a batch."""
_MOST_TEXTS = 256
_MOST_TOKENS = 1 << 14
"""Texts that grow together, and tokens of their sources."""


class Search(NamedTuple):
    beams: int = 1
    best: int = 1
    """Texts to return for each source."""
    length_penalty: float = 0.0
    """Scores are divided by ((5 + length) / 6) to this power before they are compared: above 0 prefers longer texts."""

    def compared(self, score: float, length: int) -> float:
        return score / ((5 + length) / 6) ** self.length_penalty


class GrowingBatch(NamedTuple):
    """What a model reads in a step: the sources first, then one token of each text."""

    input_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    max_seqlen: int
    target_index: Tensor
    token_type_ids: Tensor | None
    prefixes: Tensor | None
    cache: Cache


def write_left_to_right(ask: Ask, script: Script, rows: Sequence[Row], search: Search) -> list[list[Draft]]:
    """For each row's source the best texts, the best one first."""
    if not isinstance(ask, asking):
        raise ValueError("what is written left to right is computed with torch; choose --backend torch")
    drafts: list[list[Draft]] = [[] for _ in rows]
    for chosen in _batches(rows, max(1, _MOST_TEXTS // search.beams)):
        found = _search(ask.compute, ask.device, script, [rows[index] for index in chosen], search)
        for index, best in zip(chosen, found, strict=True):
            drafts[index] = best
    return drafts


def _batches(rows: Sequence[Row], most: int) -> Iterator[list[int]]:
    for chosen in by_length(rows, _MOST_TOKENS):
        for start in range(0, len(chosen), most):
            yield chosen[start : start + most]


class _Beams:
    """The texts that grow from one source, and those that have ended."""

    def __init__(self, room: int, search: Search):
        self.room, self.search = room, search
        self.live: list[Draft] = [Draft([], 0.0, [])]
        self.ended: list[Draft] = []

    def grow(self, candidates: Sequence[tuple[int, int, float]], end: int) -> list[int]:
        """Take the best continuations (index of the text, new token, score). Returns for each text that still grows
        the index of the text that it continues."""
        grown: list[Draft] = []
        parents: list[int] = []
        for parent, token, score in candidates:
            old = self.live[parent]
            if score == -math.inf or len(grown) == self.search.beams:
                break
            sure = [*old.sure, math.exp(score - old.score)]
            if token == end:
                self.ended.append(Draft(old.ids, score, sure))
            else:
                grown.append(Draft([*old.ids, token], score, sure))
                parents.append(parent)
        self.ended = sorted(self.ended, key=self._rank)[: max(self.search.best, self.search.beams)]
        self.live = grown
        if self._is_settled():
            self.live, parents = [], []
        return parents

    def _rank(self, draft: Draft) -> float:
        return -self.search.compared(draft.score, len(draft.ids) + 1)

    def _is_settled(self) -> bool:
        """Whether no text that still grows can become better than those that are to be returned."""
        if len(self.ended) < self.search.best:
            return False
        highest = max((self.search.compared(draft.score, self.room) for draft in self.live), default=-math.inf)
        return highest <= -self._rank(self.ended[self.search.best - 1])


@torch.inference_mode()
def _search(compute: Compute, device: Any, script: Script, rows: Sequence[Row], search: Search) -> list[list[Draft]]:
    sources = collate([row._replace(index_M=row.index_M[-1:]) for row in rows]).to(device)
    cache = Cache(sources.cu_seqlens.diff().long(), max(row.room for row in rows))
    batch = GrowingBatch(
        *(sources.input_ids, sources.position_ids, sources.cu_seqlens, sources.max_seqlen, sources.target_index),
        *(sources.token_type_ids, sources.prefixes, cache),
    )
    searches = [_Beams(row.room, search) for row in rows]
    growing = list(range(len(rows)))
    first_position = np.array([target_position(script, len(row.ids_L)) for row in rows])
    step = 0
    while True:
        logits_SV = compute(batch)
        if step:
            cache.grown()
        candidates = _candidates(logits_SV, [searches[index] for index in growing], script)
        parents, start = [], 0
        for index, these in zip(growing, candidates, strict=True):
            width = len(searches[index].live)
            parents += [start + parent for parent in searches[index].grow(these, script.end)]
            start += width
        growing = [index for index in growing if searches[index].live]
        if not growing:
            return [one.ended[: search.best] for one in searches]
        # Only texts that still grow are computed; where all do, nothing is copied.
        if parents != list(range(start)):
            cache.select(torch.tensor(parents, device=device))
        tokens = [draft.ids[-1] for index in growing for draft in searches[index].live]
        owners = np.repeat(growing, [len(searches[index].live) for index in growing])
        batch = _next_batch(script, cache, tokens, first_position[owners] + step, device)
        step += 1


def _next_batch(script: Script, cache: Cache, tokens: list[int], positions: np.ndarray, device: Any) -> GrowingBatch:
    size = len(tokens)
    return GrowingBatch(
        input_ids=torch.tensor(tokens, device=device),
        position_ids=torch.from_numpy(positions).to(device),
        cu_seqlens=torch.arange(size + 1, dtype=torch.int32, device=device),
        max_seqlen=1,
        target_index=torch.arange(size, device=device),
        token_type_ids=torch.ones(size, dtype=torch.long, device=device) if script.form.has_types else None,
        prefixes=None,
        cache=cache,
    )


def _candidates(logits_SV: Tensor, searches: Sequence[_Beams], script: Script) -> list[list[tuple[int, int, float]]]:
    """For each source its best continuations, twice as many as beams, since some may end. A text that has room for
    nothing else ends."""
    logits_SV = logits_SV.float()
    logits_SV[:, script.never_written] = -math.inf
    scores_SV = torch.log_softmax(logits_SV, dim=-1)
    live = [(draft, one.room) for one in searches for draft in one.live]
    scores_SV += torch.tensor([draft.score for draft, _ in live], device=scores_SV.device)[:, None]
    if full := [index for index, (draft, room) in enumerate(live) if len(draft.ids) + 1 == room]:
        ends = scores_SV[full, script.end]
        scores_SV[full] = -math.inf
        scores_SV[full, script.end] = ends
    beams = searches[0].search.beams
    vocabulary = scores_SV.shape[1]
    # The best of each text first, so that texts of sources with different numbers of beams need no padding.
    top, token = (values.tolist() for values in scores_SV.topk(min(2 * beams, vocabulary), dim=1))
    found, start = [], 0
    for one in searches:
        these = [
            (parent, token[start + parent][place], top[start + parent][place])
            for parent in range(len(one.live))
            for place in range(len(top[start]))
        ]
        found.append(sorted(these, key=lambda candidate: -candidate[2])[: 2 * beams])
        start += len(one.live)
    return found
