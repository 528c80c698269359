"""Rows to packed batches: equally long rows side by side, so that attention takes them at once."""

# L subwords of a row, M answers of a batch, K labels

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.finetune.windows import MAX_TOKENS, Ask, Row, by_length
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.plan import Plan, share_of_rank


def collate(rows: Sequence[Row]) -> PackedBatch:
    """Lay rows end to end."""
    lengths = np.array([len(row.ids_L) for row in rows], np.int64)
    borders = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=borders[1:])
    num_answers = [len(row.index_M) for row in rows]
    target_index = np.concatenate([row.index_M for row in rows]) + np.repeat(borders[:-1], num_answers)
    return PackedBatch(
        input_ids=_joined([row.ids_L for row in rows]),
        position_ids=torch.from_numpy(np.arange(borders[-1]) - np.repeat(borders[:-1], lengths)),
        cu_seqlens=torch.from_numpy(borders.astype(np.int32)),
        max_seqlen=int(lengths.max()),
        target_index=torch.from_numpy(target_index),
        target_ids=_joined([row.target_M for row in rows]),
        token_type_ids=_joined([row.type_L for row in rows]),
    )


def _joined(arrays: list[np.ndarray | None]) -> Tensor | None:
    """One array of those of all rows, where rows have any."""
    known = [array for array in arrays if array is not None]
    return torch.from_numpy(np.concatenate(known)) if known else None


def training_batches(
    rows: Sequence[Row], plan: Plan, steps: range, share: tuple[int, int], micro_batch: int
) -> Iterator[tuple[int, list[PackedBatch]]]:
    """The micro-batches of each step for one rank (its number, and how many there are), a function of the plan alone.
    Rows of a step are grouped by length."""
    lengths = np.array([len(row.ids_L) for row in rows])
    for step in steps:
        drawn = plan.rows_of_step(step)
        order = np.argsort(lengths[drawn.row_ids], kind="stable")
        drawn = drawn._replace(row_ids=drawn.row_ids[order], epochs=drawn.epochs[order])
        mine = [rows[index] for index in share_of_rank(drawn, *share).row_ids.tolist()]
        yield step, [_pinned(collate(mine[at : at + micro_batch])) for at in range(0, len(mine), micro_batch)]


def _pinned(batch: PackedBatch) -> PackedBatch:
    """In memory from which a GPU copies while the host goes on."""
    return batch.pin_memory() if torch.cuda.is_available() else batch


def asking(target_logits: Callable[[Any], Tensor], device: Any, max_tokens: int = MAX_TOKENS) -> Ask:
    """The function that computes the logits of rows with this model."""

    @torch.inference_mode()
    def ask(rows: Sequence[Row]) -> Iterator[tuple[list[int], Tensor]]:
        for chosen in by_length(rows, max_tokens):
            yield chosen, target_logits(collate([rows[index] for index in chosen]).to(device)).float()

    return ask
