"""Rows to packed batches: equally long rows side by side, so that attention takes them at once."""

# L subwords of a row, M answers of a batch, K labels

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.finetune.windows import MAX_TOKENS, Row, by_length, some_windows
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.keyed import fold_each, threshold, token_bits
from data_pipelines.masks.plan import Plan, share_of_rank
from data_pipelines.vocab.tokenizer import SpecialIds


def collate(rows: Sequence[Row]) -> PackedBatch:
    """Lay rows end to end."""
    lengths = np.array([length for row in rows for length in row.lengths or (len(row.ids_L),)], np.int64)
    borders = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=borders[1:])
    sizes = np.array([len(row.ids_L) for row in rows], np.int64)
    num_answers = [len(row.index_M) for row in rows]
    target_index = np.concatenate([row.index_M for row in rows]) + np.repeat(np.cumsum(sizes) - sizes, num_answers)
    positions = _joined([row.position_L for row in rows])
    if positions is None:
        positions = torch.from_numpy(np.arange(borders[-1]) - np.repeat(borders[:-1], lengths))
    prefixes = [row.prefix for row in rows if row.prefix is not None]
    return PackedBatch(
        input_ids=_joined([row.ids_L for row in rows]),
        position_ids=positions,
        cu_seqlens=torch.from_numpy(borders.astype(np.int32)),
        max_seqlen=int(lengths.max()),
        target_index=torch.from_numpy(target_index),
        target_ids=_joined([row.target_M for row in rows]),
        token_type_ids=_joined([row.type_L for row in rows]),
        target_group=_groups(rows),
        prefixes=torch.tensor(prefixes, dtype=torch.int32) if prefixes else None,
    )


def _groups(rows: Sequence[Row]) -> Tensor | None:
    """The target that each answer is for, where rows have fewer targets than answers."""
    if all(row.target_M is None or len(row.target_M) == len(row.index_M) for row in rows):
        return None
    begins = [np.diff(row.word_M, prepend=-1) != 0 for row in rows]
    return torch.from_numpy(np.cumsum(np.concatenate(begins)) - 1)


def _joined(arrays: list[np.ndarray | None]) -> Tensor | None:
    """One array of those of all rows, where rows have any."""
    known = [array for array in arrays if array is not None]
    return torch.from_numpy(np.concatenate(known)) if known else None


def training_batches(
    rows: Sequence[Row],
    plan: Plan,
    steps: range,
    share: tuple[int, int],
    micro_batch: int,
    draw: Callable[[Row, int], Row] = lambda row, key: row,
) -> Iterator[tuple[int, list[PackedBatch]]]:
    """The micro-batches of each step for one rank (its number, and how many there are), a function of the plan alone.
    Rows of a step, as `draw` makes them by their key, are grouped by length, and equally long ones by prefix."""
    for step in steps:
        drawn = plan.rows_of_step(step)
        keys = fold_each(plan.seed, drawn.epochs, drawn.row_ids)
        read = [draw(rows[i], int(key)) for i, key in zip(drawn.row_ids.tolist(), keys, strict=True)]
        order = np.lexsort(([row.prefix or 0 for row in read], [len(row.ids_L) for row in read]))
        rank, ranks = share
        places = drawn._replace(row_ids=order, epochs=drawn.epochs[order])
        shares = [[read[i] for i in share_of_rank(places, each, ranks).row_ids.tolist()] for each in range(ranks)]
        yield step, [_pinned(collate(part)) for part in micro_batches(shares, rank, micro_batch)]


def hiding_tokens(draw: Callable[[Row, int], Row], share: float, special: SpecialIds) -> Callable[[Row, int], Row]:
    """Draws rows as `draw` does, with a share of their tokens behind the mask token, the unknown one where there is
    none; special ones stay."""
    mask_id = special.unk_id if special.mask_id is None else special.mask_id
    if mask_id is None:
        raise ValueError(
            f"train.token_dropout={share} hides tokens behind a mask token, and the tokenizer has none; set 0"
        )
    never = np.array(sorted(special.special_ids))

    def drawn(row: Row, key: int) -> Row:
        row = draw(row, key)
        # Its own key, so that what is hidden does not depend on what `draw` drew.
        bits_L = token_bits(fold_each(key, 0), np.array([0, len(row.ids_L)]))
        hidden_L = (bits_L < threshold(share)) & ~np.isin(row.ids_L, never)
        return row._replace(ids_L=np.where(hidden_L, mask_id, row.ids_L))

    return drawn


def drawing_windows(draw: Callable[[Row, int], Row], most: int) -> Callable[[Row, int], Row]:
    """Draws rows as `draw` does, of those with more than `most` windows as many, others at every step."""

    def drawn(row: Row, key: int) -> Row:
        row = draw(row, key)
        if row.num_windows <= most:
            return row
        bits = token_bits(fold_each(key, 1), np.array([0, row.num_windows]))
        return some_windows(row, np.sort(np.argsort(bits)[:most]).tolist())

    return drawn


def micro_batches(shares: Sequence[Sequence[Row]], rank: int, most: int) -> list[Sequence[Row]]:
    """The rows of one rank in parts of at most `most` windows, unless a single row has more; as many parts as every
    other rank, because sharded ranks compute each of them together."""
    parts_of_ranks = [_cut(rows, most) for rows in shares]
    parts = parts_of_ranks[rank]
    while len(parts) < max(map(len, parts_of_ranks)):
        at = max(range(len(parts)), key=lambda index: len(parts[index]))
        half = len(parts[at]) // 2
        parts[at : at + 1] = [parts[at][:half], parts[at][half:]]
    return parts


def _cut(rows: Sequence[Row], most: int) -> list[Sequence[Row]]:
    parts, start, held = [], 0, 0
    for index, row in enumerate(rows):
        if index > start and held + row.num_windows > most:
            parts.append(rows[start:index])
            start, held = index, 0
        held += row.num_windows
    return [*parts, rows[start:]]


def _pinned(batch: PackedBatch) -> PackedBatch:
    """In pinned memory, from which a GPU copies while the host continues."""
    return batch.pin_memory() if torch.cuda.is_available() else batch


class asking:
    """Computes the logits of rows with this model: an `Ask`."""

    def __init__(self, target_logits: Callable[[Any], Tensor], device: Any, max_tokens: int = MAX_TOKENS):
        self.device, self._target_logits, self._max_tokens = device, target_logits, max_tokens

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Row]) -> Iterator[tuple[list[int], Tensor]]:
        for chosen in by_length(rows, self._max_tokens):
            yield chosen, self.compute(collate([rows[index] for index in chosen]).to(self.device))

    @torch.inference_mode()
    def compute(self, batch: Any) -> Tensor:
        """The logits at the targets of a batch that lies on the device."""
        return self._target_logits(batch).float()
