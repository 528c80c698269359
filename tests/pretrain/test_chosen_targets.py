"""Objectives that differ from masked LM in which tokens are asked for, or computed, and how often."""

import numpy as np
import pytest
import torch
from collating import PLAIN
from tiny import both

from bertkit.evaluate.ngram import NGram
from bertkit.model import Pack, build_encoder
from bertkit.pretrain.objectives.diffusion import LEVELS, RateOfEachRow
from bertkit.pretrain.objectives.hard_targets import HardTargets
from bertkit.pretrain.objectives.token_dropping import DroppedTokens
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.loader import _as_tensors
from data_pipelines.rows.batch import RowBatch

NUM_ROWS, LENGTH = 200, 40


def make_rows(seed=0):
    """Of ids from 5 on, low ones far more often; 6 always after 5, words of two tokens."""
    rng = np.random.default_rng(seed)
    ids = 5 + np.minimum(rng.geometric(0.06, (NUM_ROWS, LENGTH)), 94)
    ids[:, 10], ids[:, 11] = 5, 6
    ids[:, 0], ids[:, -1] = 2, 3
    starts = np.arange(NUM_ROWS + 1) * LENGTH
    return RowBatch(ids.reshape(-1), starts, starts, np.tile(np.arange(LENGTH) % 2 == 0, NUM_ROWS))


class Shards(list):
    """As much of `Rows` as the collator asks for."""

    num_tokens, vocab_size = NUM_ROWS * LENGTH, 100

    def gather(self, row_ids):
        assert list(row_ids) == list(range(NUM_ROWS))
        return make_rows()


def masking(**options):
    return MaskingCollator(**PLAIN, layout="packed", return_tensors="np", seed=5, **options)


def collated(collator, epoch=0):
    row_ids = np.arange(NUM_ROWS)
    return collator.collate_rows(make_rows(), row_ids, np.full(NUM_ROWS, epoch), 0)


@pytest.mark.parametrize(("unit", "mean"), [("token", 0.5), ("span", 0.3), ("token", 0.8)])
def test_each_row_is_masked_as_with_its_own_rate_alone(unit, mean):
    collator = RateOfEachRow(masking(mlm_probability=mean, unit=unit))
    rates = collator.rates(np.arange(NUM_ROWS), np.zeros(NUM_ROWS, int), 0)
    half = min(mean, 1 - mean)
    assert len(set(rates)) == LEVELS
    assert (rates.min(), rates.max()) == pytest.approx((mean - half * (1 - 1 / LEVELS), mean + half * (1 - 1 / LEVELS)))
    assert rates.mean() == pytest.approx(mean, abs=0.1 * half)
    batch, rows = collated(collator), make_rows()
    for row in range(0, NUM_ROWS, 23):
        ids = rows.ids_T[row * LENGTH : (row + 1) * LENGTH]
        alone = masking(mlm_probability=float(rates[row]), unit=unit).collate_rows(
            RowBatch(ids, np.array([0, LENGTH]), np.array([0, LENGTH])), np.array([row]), np.zeros(1, int), 0
        )
        mine = (batch.target_index >= row * LENGTH) & (batch.target_index < (row + 1) * LENGTH)
        np.testing.assert_array_equal(batch.target_index[mine] - row * LENGTH, alone.target_index)
        np.testing.assert_array_equal(batch.input_ids[row * LENGTH : (row + 1) * LENGTH], alone.input_ids)


@pytest.mark.parametrize(("order", "unit"), [(1, "token"), (2, "token"), (2, "word")])
def test_hard_tokens_are_asked_for_in_proportion_to_their_weight(order, unit):
    rows = make_rows()
    counted = NGram(rows.ids_T, 100, order, borders=range(5))
    collator = HardTargets(masking(mlm_probability=0.2, unit=unit), counted, Shards(range(NUM_ROWS)))
    weights, chosen = collator.weights(rows) * collator.scale, np.zeros(len(rows.ids_T))
    for epoch in range(100):
        batch = collated(collator, epoch)
        chosen[batch.target_index] += 0.01
        np.testing.assert_array_equal(batch.target_ids, rows.ids_T[batch.target_index])
    maskable = rows.ids_T >= 5
    assert chosen[~maskable].sum() == 0
    assert chosen[maskable].mean() == pytest.approx(0.2, rel=0.02)
    for low, high in ((0.0, 0.7), (0.7, 1.2), (1.2, 9.0)):
        here = maskable & (weights >= low) & (weights < high)
        assert chosen[here].mean() == pytest.approx(0.2 * weights[here].mean(), rel=0.04)
    # Whatever its frequency, 6 is easy after 5 for a model that sees the token before.
    after = np.flatnonzero(rows.ids_T == 6)[np.flatnonzero(rows.ids_T == 6) % LENGTH == 11]
    if unit == "token":
        assert (weights[after].mean() < 0.6) == (order == 2)


def test_words_stay_whole_where_hard_words_are_masked():
    rows = make_rows()
    collator = HardTargets(
        masking(mlm_probability=0.2, unit="word"), NGram(rows.ids_T, 100, 2, range(5)), Shards(range(NUM_ROWS))
    )
    chosen = np.zeros(len(rows.ids_T), bool)
    chosen[collated(collator).target_index] = True
    first, second = chosen.reshape(NUM_ROWS, -1, 2)[:, 1:-1].reshape(-1, 2).T
    np.testing.assert_array_equal(first, second)


def test_targets_and_special_tokens_are_never_dropped_and_of_the_others_a_share_is():
    rows, plain = make_rows(), collated(masking())
    batch = collated(DroppedTokens(masking(), 0.4))
    np.testing.assert_array_equal(batch.input_ids, plain.input_ids)
    np.testing.assert_array_equal(batch.target_index, plain.target_index)
    dropped = np.ones(len(rows.ids_T), bool)
    dropped[batch.middle_index] = False
    assert not dropped[batch.target_index].any()
    assert not dropped[rows.ids_T < 5].any()
    others = np.setdiff1d(np.flatnonzero(rows.ids_T >= 5), batch.target_index)
    assert dropped[others].mean() == pytest.approx(0.4, abs=0.02)
    assert len(collated(DroppedTokens(masking(), 0.0)).middle_index) == len(rows.ids_T)


@both
def test_dropped_tokens_skip_the_middle_blocks_and_nothing_else(config):
    config = type(config)(**{**vars(config), "num_hidden_layers": 4})
    encoder = build_encoder(config, 3).double().eval()
    ids = torch.arange(5, 25)
    whole = Pack(ids, torch.arange(20) % 10, torch.tensor([0, 10, 20], dtype=torch.int32), 10)

    def encoded(kept):
        batch = _as_tensors(collated(DroppedTokens(masking(), 0.5)))
        fields = {name: getattr(whole, name) for name in ("input_ids", "position_ids", "cu_seqlens", "max_seqlen")}
        return encoder.encode(type(batch)(**fields, target_index=None, target_ids=None, middle_index=kept))

    torch.testing.assert_close(encoded(torch.arange(20)), encoder.encode(whole))
    inputs = []
    for layer in encoder.layers:
        layer.register_forward_hook(lambda layer, given, out: inputs.append((given[0], out)))
    kept = torch.tensor([0, 3, 4, 9, 10, 11, 19])
    encoded(kept)
    (_, first), (second, _), (_, third), (last, _) = inputs
    assert torch.equal(second, first[kept])
    assert torch.equal(last[kept], third)
    dropped = torch.tensor([place for place in range(20) if place not in kept])
    assert torch.equal(last[dropped], first[dropped])
    # Among themselves, the tokens that are left are as in a pack without the others.
    left = Pack(ids[kept], whole.position_ids[kept], torch.tensor([0, 4, 7], dtype=torch.int32), 4)
    rest = (encoder.rotations(left.position_ids),) if hasattr(encoder, "rotations") else ()
    torch.testing.assert_close(encoder.layers[1](second, left, *rest), inputs[1][1])
