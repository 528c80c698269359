"""The plan: every row once an epoch, whatever the step sizes, ranks and restarts, at any corpus size."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.masks.keyed import permute
from data_pipelines.masks.plan import Plan, share_of_rank


@pytest.mark.parametrize("size", [*range(1, 40), 63, 64, 65, 255, 256, 257, 1000, 4095, 4097, 65_537])
def test_the_row_order_is_a_permutation_of_any_size(size):
    for key in (0, 1, 2**64 - 1):
        assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


def test_a_row_goes_to_the_same_place_whoever_asks():
    whole = permute(np.arange(1000), 1000, 7)
    assert [int(permute(np.array([i]), 1000, 7)[0]) for i in range(0, 1000, 97)] == whole[::97].tolist()


def test_the_order_looks_random():
    """Neighbours, places and epochs are unrelated: every correlation stays within four standard errors."""
    size = 10_000
    first, second = (permute(np.arange(size), size, key) for key in (1, 2))
    for one, other in ((first, np.arange(size)), (first[1:], first[:-1]), (first, second)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / size**0.5
    assert abs(np.mean(first == second) * size - 1) < 6


def walk(plan: Plan, steps) -> tuple[list[int], list[int]]:
    rows = [plan.rows_of_step(step) for step in steps]
    return [int(i) for step in rows for i in step.row_ids], [int(e) for step in rows for e in step.epochs]


@given(st.integers(1, 60), st.integers(1, 25), st.integers(0, 2**63))
@settings(deadline=None, max_examples=60)
def test_every_row_comes_once_an_epoch_and_steps_cross_epoch_borders(num_rows, global_batch, seed):
    plan = Plan(num_rows, global_batch, seed)
    rows, epochs = walk(plan, range(3 * num_rows // global_batch + 2))
    for epoch in range(len(rows) // num_rows):
        here = slice(epoch * num_rows, (epoch + 1) * num_rows)
        assert sorted(rows[here]) == list(range(num_rows))
        assert set(epochs[here]) == {epoch}


def test_epochs_and_seeds_have_orders_of_their_own():
    plan = Plan(100, 100, seed=0)
    orders = {tuple(plan.rows_of_step(step).row_ids) for step in range(5)}
    orders |= {tuple(Plan(100, 100, seed).rows_of_step(0).row_ids) for seed in range(1, 5)}
    assert len(orders) == 9


@given(st.integers(1, 500), st.integers(0, 40), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_stages_go_through_the_same_order_in_other_strides(num_rows, switch, seed):
    staged = Plan(num_rows, ((0, 4), (switch + 1, 10), (switch + 5, 3)), seed)
    steps = range(switch + 9)
    assert [staged.batch_of_step(step) for step in steps] == [4] * (switch + 1) + [10] * 4 + [3] * 4
    rows, epochs = walk(staged, steps)
    assert staged.rows_before_step(len(steps)) == len(rows)
    assert (rows, epochs) == walk(Plan(num_rows, 1, seed), range(len(rows)))


@given(st.integers(1, 100), st.sampled_from([1, 2, 3, 4, 6, 12]), st.integers(0, 50))
@settings(deadline=None, max_examples=40)
def test_the_ranks_together_have_the_step(num_rows, world_size, step):
    rows = Plan(num_rows, 12, seed=3).rows_of_step(step)
    shares = [share_of_rank(rows, rank, world_size) for rank in range(world_size)]
    assert np.array_equal(np.concatenate([share.row_ids for share in shares]), rows.row_ids)
    assert np.array_equal(np.concatenate([share.epochs for share in shares]), rows.epochs)


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"12 rows.* 5 processes.*multiple of 5"):
        share_of_rank(Plan(100, 12, 0).rows_of_step(0), 0, 5)


def test_a_billion_rows_cost_what_a_thousand_do():
    plan = Plan(10**9, 256, seed=1)
    plan.rows_of_step(0)
    tracemalloc.start()
    for step in (0, 10**6, 10**9, 10**12):
        rows = plan.rows_of_step(step)
        assert len(set(rows.row_ids.tolist())) == 256
        assert 0 <= rows.row_ids.min() <= rows.row_ids.max() < 10**9
        assert rows.epochs[0] == step * 256 // 10**9
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("global_batch", [0, ((1, 4),), ((0, 4), (0, 8)), ((0, 4), (3, 0)), ((0, 4), (5, 1), (3, 1))])
def test_a_plan_that_cannot_be_is_refused(global_batch):
    with pytest.raises(ValueError, match="ascending stages from step 0 with positive sizes"):
        Plan(10, global_batch, 0)
    with pytest.raises(ValueError, match="no rows"):
        Plan(0, 1, 0)
