"""Rows and their targets as arrays: padded for any project, or packed for our encoders."""

from dataclasses import replace
from typing import Any

import numpy as np

from data_pipelines.masks.batch import IGNORED
from data_pipelines.masks.examples import along_tokens, stacked
from data_pipelines.masks.masking import Targets
from data_pipelines.rows.batch import RowBatch
from data_pipelines.vocab.vocabulary import Vocabulary

# T tokens in the batch, R rows


def padded(
    rows: RowBatch,
    targets: Targets,
    attended_T: np.ndarray | None,
    columns: dict[str, list],
    vocabulary: Vocabulary,
    multiple: int | None,
) -> dict[str, Any]:
    """`input_ids`, `attention_mask` and `labels`, each (R, width), and the further columns; the width is a multiple of
    `multiple`."""
    lengths = rows.row_starts[1:] - rows.row_starts[:-1]
    width = int(np.maximum.reduce(lengths))
    if multiple:
        width = -(-width // multiple) * multiple
    shape, num_tokens = (len(lengths), width), len(rows.ids_T)
    # None where every row is full.
    filled = None if len(lengths) * width == num_tokens else _filled(lengths, width, vocabulary.pads_left)
    if filled is not None and vocabulary.pad_id is None:
        raise ValueError(
            "rows of different length need padding, and no pad token is known: set tokenizer.pad_token, or give "
            'pad_id, rows of one length, or layout="packed"'
        )
    pad_id = vocabulary.pad_id or 0

    def spread(flat_T: np.ndarray, padding: int) -> np.ndarray:
        if filled is None:
            return flat_T.reshape(shape)
        spread_out = _full(padding, shape, flat_T.dtype)
        spread_out[filled] = flat_T
        return spread_out

    if attended_T is not None:
        attention_mask = spread(attended_T.astype(np.int64), 0)
    else:
        attention_mask = _full(1, shape) if filled is None else filled.astype(np.int64)
    labels_T = _full(IGNORED, num_tokens)
    labels_T[targets.index] = targets.ids
    batch: dict[str, Any] = {
        "input_ids": spread(rows.ids_T, pad_id),
        "attention_mask": attention_mask,
        "labels": spread(labels_T, IGNORED),
    }
    for name, values in columns.items():
        if name == "labels":
            continue  # labels of another task; here the targets are the labels
        flat_T = along_tokens(values, lengths)
        padding = vocabulary.pad_type if name == "token_type_ids" else 0
        batch[name] = stacked(values) if flat_T is None else spread(flat_T, padding)
    return batch


def packed(rows: RowBatch, targets: Targets, starts_word_T: np.ndarray | None) -> dict[str, Any]:
    """The arrays of a `PackedBatch`, by name."""
    starts = rows.sequence_starts
    lengths = starts[1:] - starts[:-1]
    return {
        "input_ids": rows.ids_T,
        "position_ids": np.arange(len(rows.ids_T)) - starts[:-1].repeat(lengths),
        "cu_seqlens": starts.astype(np.int32),
        "max_seqlen": int(lengths.max(initial=0)),
        "target_index": targets.index,
        "target_ids": targets.ids,
        "target_kind": targets.kind,
        "target_starts_word": (
            np.ones(len(targets.index), bool) if starts_word_T is None else starts_word_T[targets.index]
        ),
    }


def attended_only(rows: RowBatch, targets: Targets, starts_word_T, attended_T):
    """The same without the tokens that have attention_mask 0; none of them is a target."""
    before = np.concatenate([[0], np.cumsum(attended_T)])  # attended tokens before each position
    borders = before[rows.row_starts]
    starts_word_T = None if starts_word_T is None else starts_word_T[attended_T]
    rows = RowBatch(rows.ids_T[attended_T], borders, borders)
    return rows, replace(targets, index=before[targets.index]), starts_word_T


def _full(value: int, shape: int | tuple[int, int], dtype: Any = np.int64) -> np.ndarray:
    """`np.full` in three quarters of its time."""
    array = np.empty(shape, dtype)
    array.fill(value)
    return array


def _filled(lengths: np.ndarray, width: int, pads_left: bool) -> np.ndarray:
    """(R, width) bool: where the padded rows hold tokens."""
    # With two bytes each, the processor compares four times as many at once.
    small = np.int16 if width < 2**15 else np.int64
    places, lengths = np.arange(width, dtype=small), lengths.astype(small)
    return places >= (width - lengths)[:, None] if pads_left else places < lengths[:, None]
