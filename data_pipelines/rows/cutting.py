"""Encoded documents to rows: [CLS] sequence [SEP] after [CLS] sequence [SEP]; no token is dropped, borders are kept."""

import numpy as np

from data_pipelines.rows.batch import RowBatch
from data_pipelines.rows.config import PrepareConfig

_FRAME = 2
"""[CLS] and [SEP] around every sequence."""


class RowBuilder:
    """Collects documents and lays them into rows of at most `seq_len` tokens.

    A document follows the one before it in the same row, if it fits there or if at least an eighth of the row is free;
    otherwise a new row begins. What does not fit opens the next row. A sentence follows only if it fits.
    """

    def __init__(self, special, config: PrepareConfig):
        self._special, self._rows, self._seq_len = special, config.rows, config.seq_len
        self._free, self.num_tokens = 0, 0
        self._clear()

    def add(self, lengths: list[int], ids_T: np.ndarray, starts_word_T: np.ndarray) -> None:
        """Add documents or sentences of the given lengths, laid end to end."""
        if not len(ids_T):
            return
        self._ids.append(ids_T)
        self._words.append(starts_word_T)
        room = self._seq_len - _FRAME
        worth = room if self._rows == "sentences" else max(self._seq_len // 8, 1)
        for left in lengths:
            free = self._free - _FRAME if self._rows != "line" else 0
            if free < min(left, worth):
                free = 0
            while left:
                opens = free == 0
                length = min(left, room if opens else free)
                self._lengths.append(length)
                self._opens.append(opens)
                self._free = (self._seq_len if opens else self._free) - length - _FRAME
                self.num_tokens += length + _FRAME
                left, free = left - length, 0

    def end_row(self) -> None:
        """Let the next document begin a row."""
        self._free = 0

    def take(self) -> RowBatch:
        """What was collected since the last call. Sequences before the first row start belong to the row that was open
        then."""
        lengths = np.array(self._lengths, np.int64)
        sequence_starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths + _FRAME, out=sequence_starts[1:])
        total = int(sequence_starts[-1])
        framed = np.ones(total, bool)
        framed[sequence_starts[:-1]] = False
        framed[sequence_starts[1:] - 1] = False
        ids_T = np.empty(total, self._ids[0].dtype if self._ids else np.uint16)
        ids_T[sequence_starts[:-1]] = self._special.cls_id
        ids_T[sequence_starts[1:] - 1] = self._special.sep_id
        words_T = np.ones(total, bool)
        if self._ids:
            ids_T[framed] = np.concatenate(self._ids)
            words_T[framed] = np.concatenate(self._words)
        row_starts = np.append(sequence_starts[:-1][np.array(self._opens, bool)], total)
        self._clear()
        return RowBatch(ids_T, row_starts, sequence_starts, words_T)

    def _clear(self) -> None:
        self._ids: list[np.ndarray] = []
        self._words: list[np.ndarray] = []
        self._lengths: list[int] = []
        self._opens: list[bool] = []
        self.num_tokens = 0
