"""A pack is cut into few tiles: equally long neighbours together, short ones together, long ones by themselves."""

import pytest
import torch

from bertkit.model.attention_tiles import CALL_COST, cut

torch.set_num_threads(1)


def tiles_of(lengths, at=None, reach=-1, width=256, prefixes=None):
    packed = torch.empty(sum(lengths), 3, 4, width // 4)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    prefixes = None if prefixes is None else torch.tensor(prefixes)
    return cut(packed, cu_seqlens, None if at is None else torch.tensor(at), reach, prefixes)


def rows(tiles):
    return [(tile.key_rows.start, tile.key_rows.stop, tile.num_sequences) for tile in tiles]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], []),
        ([0, 0], []),
        ([100], [(0, 100, 1)]),
        ([100, 100, 100], [(0, 300, 3)]),
        ([100, 90], [(0, 100, 1), (100, 190, 1)]),
        ([10, 20, 30], [(0, 60, 1)]),
        ([10, 20, 0, 30, 5], [(0, 60, 1), (60, 65, 1)]),
        ([10, 10, 0, 10], [(0, 30, 3)]),
        ([40] * 8 + [7, 7, 9], [(0, 320, 8), (320, 343, 1)]),
    ],
)
def test_short_neighbours_share_a_tile_and_equal_ones_a_view(lengths, expected):
    assert rows(tiles_of(lengths)) == expected


def test_the_wider_a_model_the_fewer_tokens_share_a_tile():
    assert rows(tiles_of([10, 20, 30], width=256)) == [(0, 60, 1)]
    assert rows(tiles_of([10, 20, 30], width=768)) == [(0, 30, 1), (30, 60, 1)]
    assert CALL_COST == 64**2 * 256


def test_sequences_that_share_a_tile_are_kept_apart():
    (tile,) = tiles_of([2, 2, 3])
    seen = (tile.band(torch.empty(0)) == 0).int().tolist()
    first, second, third = [1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1]
    assert seen == [first, first, second, second, third, third, third]
    (tile,) = tiles_of([2, 3], reach=1)
    assert (tile.band(torch.empty(0)) == 0).int().tolist()[2:] == [[0, 0, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([10, 20, 30], [(0, 60, 3)]),
        ([10, 60, 0, 10, 5], [(0, 85, 4)]),
        ([10] * 4 + [60], [(0, 40, 4), (40, 100, 1)]),
        ([65, 66], [*[(0, 65, 1)] * 2, *[(65, 131, 1)] * 2]),
        ([60] * 8 + [7, 7, 9], [(0, 480, 8), (480, 503, 3)]),
        ([31, 32] * 600, [(0, 32_256, 1024), (32_256, 37_800, 176)]),
    ],
)
def test_short_ones_with_prefixes_are_filled_up_where_that_costs_less_than_a_call(lengths, expected):
    assert rows(tiles_of(lengths, prefixes=[3] * len(lengths))) == expected


def test_sequences_are_filled_up_to_the_longest_and_none_sees_the_filling():
    (tile,) = tiles_of([2, 2, 3], prefixes=[9, 9, 9])
    rows_THE = torch.arange(1.0, 8).view(7, 1, 1)
    side_by_side = tile.keys_of(rows_THE)
    assert side_by_side.flatten(1).tolist() == [[1, 2, 0], [3, 4, 0], [5, 6, 7]]
    back = torch.zeros(7, 1, 1)
    tile.put_queries(back, side_by_side)
    tile.add_keys(back, side_by_side)
    assert torch.equal(back, 2 * rows_THE)
    seen = (tile.band(torch.empty(0)) == 0).int().squeeze(1)
    assert seen[:2].tolist() == [[[1, 1, 0]] * 3] * 2
    assert seen[2].tolist() == [[1, 1, 1]] * 3
    (tile,) = tiles_of([2, 3], reach=1, prefixes=[9, 9])
    assert (tile.band(torch.empty(0)) == 0)[1, 0].int().tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    (tile,) = tiles_of([3, 3], prefixes=[0, 2])
    assert (tile.band(torch.empty(0)) == 0)[:, 0].int().tolist() == [
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
        [[1, 1, 0], [1, 1, 0], [1, 1, 1]],
    ]


def test_a_tile_has_no_keys_that_none_of_its_queries_sees():
    assert [tile.keys for tile in tiles_of([200], prefixes=[0])] == [slice(0, end) for end in (64, 128, 192, 200)]
    assert [tile.keys for tile in tiles_of([200], prefixes=[100])] == [slice(0, end) for end in (100, 128, 192, 200)]
    assert rows(tiles_of([200, 200, 200], prefixes=[200, 300, 150])) == [
        (0, 200, 1),
        (200, 400, 1),
        *[(400, 600, 1)] * 4,
    ]


def test_some_tokens_are_asked_for_where_they_stand():
    both, last = tiles_of([10, 20, 100, 50], at=[3, 15, 135])
    assert (both.query_rows, both.key_rows) == (slice(0, 2), slice(0, 30))
    assert both.band(torch.empty(0)).eq(0).sum(1).tolist() == [10, 20]
    assert (last.query_rows, last.key_rows) == (slice(2, 3), slice(130, 180))
    assert last.band(torch.empty(0)) is None


def test_sequences_asked_for_one_token_each_share_a_view():
    (tile,) = tiles_of([20] * 5, at=[3, 25, 47, 60, 99])
    assert (tile.query_rows, tile.key_rows, tile.num_sequences) == (slice(0, 5), slice(0, 100), 5)
    assert tile.band(torch.empty(0)) is None
    (tile,) = tiles_of([20] * 5, at=[3, 4, 47, 60, 99])
    assert tile.queries.real.tolist() == [0, 1, 4, 6, 8]
    (tile,) = tiles_of([10, 20], at=[3, 15, 16], prefixes=[0, 9])
    assert tile.queries.real.tolist() == [0, 2, 3]
    assert tile.band(torch.empty(0)).eq(0).sum(-1).tolist() == [[[4, 1]], [[9, 9]]]
    assert len(tiles_of([200] * 5, at=[3, 204, 405, 606, 807], reach=2)) == 5


def test_every_block_gets_the_same_tiles_and_they_are_made_once():
    assert tiles_of([5, 6, 7]) is tiles_of([5, 6, 7])
