"""Rows of pieces enter, packed batches leave: equally long rows side by side, so that attention takes them at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from bertkit.finetune.windows import Row
from data_pipelines.masks.plan import Plan, share_of_rank

# T pieces in the pack, S rows, M answers


@dataclass(frozen=True)
class LabeledBatch:
    input_ids: Any
    """(T,)"""
    position_ids: Any
    """(T,) place of each piece in its row."""
    cu_seqlens: Any
    """(S+1,) int32 borders of the rows."""
    max_seqlen: int
    target_index: Any
    """(M,) where answers are read."""
    target_ids: Any
    """(M,) the right labels; zeros where nobody knows them."""

    def to(self, device: torch.device, non_blocking: bool = False) -> "LabeledBatch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return LabeledBatch(
            **{k: v if isinstance(v, int) else v.to(device, non_blocking=non_blocking) for k, v in values.items()}
        )


def collate(rows: Sequence[Row], answers: Sequence[np.ndarray] | None = None) -> LabeledBatch:
    """Lay rows end to end; `answers` holds the labels of each row's places."""
    lengths = np.array([len(row.ids_L) for row in rows], np.int64)
    borders = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=borders[1:])
    num_places = [len(row.places) for row in rows]
    target_index = np.concatenate([row.places for row in rows]) + np.repeat(borders[:-1], num_places)
    target_ids = np.zeros_like(target_index) if answers is None else np.concatenate(answers)
    return LabeledBatch(
        input_ids=torch.from_numpy(np.concatenate([row.ids_L for row in rows])),
        position_ids=torch.from_numpy(np.arange(borders[-1]) - np.repeat(borders[:-1], lengths)),
        cu_seqlens=torch.from_numpy(borders.astype(np.int32)),
        max_seqlen=int(lengths.max()),
        target_index=torch.from_numpy(target_index),
        target_ids=torch.from_numpy(target_ids),
    )


def training_steps(
    rows: Sequence[Row],
    answers: Sequence[np.ndarray],
    plan: Plan,
    *,
    first_step: int,
    last_step: int,
    rank: int,
    world_size: int,
    micro_batch: int,
) -> Iterator[tuple[int, list[LabeledBatch]]]:
    """This rank's micro-batches of each step, a function of the plan alone. Rows of a step are grouped by length."""
    lengths = np.array([len(row.ids_L) for row in rows])
    for step in range(first_step, last_step):
        drawn = plan.rows_of_step(step)
        by_length = np.argsort(lengths[drawn.row_ids], kind="stable")
        drawn = drawn._replace(row_ids=drawn.row_ids[by_length], epochs=drawn.epochs[by_length])
        mine = share_of_rank(drawn, rank, world_size).row_ids.tolist()
        yield (
            step,
            [
                collate([rows[i] for i in chosen], [answers[i] for i in chosen])
                for chosen in (mine[at : at + micro_batch] for at in range(0, len(mine), micro_batch))
            ],
        )


def by_length(rows: Sequence[Row], max_tokens: int) -> Iterator[list[int]]:
    """Indices of rows, short ones first, as many at once as `max_tokens` pieces allow."""
    held: list[int] = []
    size = 0
    for index in np.argsort([len(row.ids_L) for row in rows], kind="stable").tolist():
        if held and size + len(rows[index].ids_L) > max_tokens:
            yield held
            held, size = [], 0
        held.append(index)
        size += len(rows[index].ids_L)
    if held:
        yield held
