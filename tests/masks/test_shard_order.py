"""An order by shards: every row once an epoch, one shard to begin with, a few at a time, well mixed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.masks.plan import Plan
from data_pipelines.masks.shard_order import ShardOrder

sizes = st.lists(st.integers(1, 30), min_size=1, max_size=12)


@given(sizes, st.integers(1, 6), st.integers(0, 3), st.integers(0, 2**63))
@settings(deadline=None, max_examples=80)
def test_every_row_comes_once_and_only_while_its_shard_is_needed(rows_of_shards, mixed, epoch, seed):
    order, total = ShardOrder(rows_of_shards, mixed, seed), sum(rows_of_shards)
    row_ids = order.row_ids(np.arange(total), epoch)
    assert sorted(row_ids) == list(range(total))
    shard_of_row = np.repeat(np.arange(len(rows_of_shards)), rows_of_shards)
    spans = {span.shard: span for span in order.spans(epoch)}
    for place, shard in enumerate(shard_of_row[row_ids]):
        assert spans[shard].first <= place < spans[shard].end


@given(sizes, st.integers(1, 6), st.integers(0, 2**63))
@settings(deadline=None, max_examples=80)
def test_an_epoch_begins_with_one_shard_and_never_needs_more_than_it_mixes(rows_of_shards, mixed, seed):
    order = ShardOrder([size * mixed for size in rows_of_shards], mixed, seed)
    spans = order.spans(0)
    assert sorted(span.shard for span in spans) == list(range(len(rows_of_shards)))
    assert [span.first for span in spans] == sorted({span.first for span in spans})
    for place in range(sum(rows_of_shards) * mixed):
        assert sum(span.first <= place < span.end for span in spans) <= mixed


def test_a_place_has_its_row_whoever_asks():
    order = ShardOrder([40, 7, 19], 2, seed=3)
    whole = order.row_ids(np.arange(66), 1)
    assert [int(order.row_ids(np.array([place]), 1)[0]) for place in range(66)] == whole.tolist()
    assert order.row_ids(np.array([5]), 9) is not None  # another epoch in between changes nothing
    assert np.array_equal(order.row_ids(np.arange(66), 1), whole)
    assert not np.array_equal(order.row_ids(np.arange(66), 2), whole)
    assert not np.array_equal(ShardOrder([40, 7, 19], 2, seed=4).row_ids(np.arange(66), 1), whole)


def test_the_shards_of_a_part_are_mixed_and_each_in_an_order_of_its_own():
    order = ShardOrder([1000] * 20, 4, seed=0)
    row_ids = order.row_ids(np.arange(20_000), 0)
    part = row_ids[8500:9500]  # after parts of 250, 500 and 750 rows, and seven of 1000
    assert sorted(np.bincount(part // 1000))[-4:] == [250] * 4
    for one, other in ((part[1:] // 1000, part[:-1] // 1000), (part[1:] % 1000, part[:-1] % 1000)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / 1000**0.5


@pytest.mark.parametrize("mixed", [1, 3])
def test_a_plan_crosses_epochs_in_an_order_by_shards(mixed):
    plan = Plan(12, 5, seed=1, order=ShardOrder([5, 4, 3], mixed, seed=1))
    rows = [plan.rows_of_step(step) for step in range(12)]
    row_ids, epochs = (np.concatenate(column) for column in zip(*rows, strict=True))
    for epoch in range(5):
        assert sorted(row_ids[epochs == epoch]) == list(range(12))
