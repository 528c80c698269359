"""The statistics count what happened, so that a collator that does wrong is seen."""

from dataclasses import replace

import numpy as np
import pytest

from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.statistics import MaskStatistics
from data_pipelines.rows.batch import RowBatch

# Two rows: [CLS] eight words [SEP], with ids 2 and 3 around.
BORDERS = np.array([0, 10, 20])
ROWS = RowBatch(np.array([2, *range(10, 18), 3, 2, *range(20, 28), 3]), BORDERS, BORDERS, np.ones(20, bool))


def masked():
    return collator().collate_rows(ROWS, np.arange(2), np.zeros(2, np.int64), step=0)


def collator():
    return MaskingCollator(
        mask_id=4,
        vocab_size=40,
        special_ids=range(5),
        seed=0,
        layout="packed",
        return_tensors="np",
        mlm_probability=0.5,
    )


def counted(batch) -> MaskStatistics:
    statistics = MaskStatistics()
    statistics.add(ROWS, batch, collator())
    return statistics


def test_an_honest_batch_breaks_no_law():
    batch = masked()
    found = counted(batch)
    assert (found.rows, found.tokens, found.maskable) == (2, 20, 16)
    assert found.selected == len(batch.target_index) == found.masked + found.random + found.kept
    assert (found.specials_touched, found.unselected_changed, found.rows_without_target) == (0, 0, 0)
    assert found.expected == pytest.approx(2 * (8 * 0.5 + 0.5**8))  # half, and one more in a row that has none


def test_a_touched_special_token_is_counted():
    batch = masked()
    ids = batch.input_ids.copy()
    ids[0] = 4
    assert counted(replace(batch, input_ids=ids)).specials_touched == 1


def test_a_change_that_no_target_covers_is_counted():
    batch = masked()
    ids = batch.input_ids.copy()
    free = next(place for place in range(1, 9) if place not in batch.target_index)
    ids[free] = 39
    found = counted(replace(batch, input_ids=ids))
    assert (found.unselected_changed, found.specials_touched) == (1, 0)


def test_a_row_without_target_is_counted():
    batch = masked()
    first = batch.target_index < 10
    ids = np.where(np.arange(20) < 10, ROWS.ids_T, batch.input_ids)
    found = counted(
        replace(batch, input_ids=ids, target_index=batch.target_index[~first], target_kind=batch.target_kind[~first])
    )
    assert (found.rows_without_target, found.unselected_changed) == (1, 0)


def test_shares_stand_beside_what_was_asked_for():
    statistics = MaskStatistics(
        rows=4, tokens=220, maskable=200, selected=30, masked=24, random=4, kept=2, expected=32.0
    )
    rates = statistics.rates(MaskConfig(), drawable=100)
    assert [rate.share for rate in rates[:4]] == pytest.approx([0.15, 0.8, 4 / 30, 2 / 30])
    assert [rate.expected for rate in rates] == pytest.approx([0.16, 0.8, 0.1, 0.1, 0.01, 0, 0, 0])
