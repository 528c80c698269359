"""Scores count every target once and the same; buckets are what their names say."""

import math

import numpy as np
import pytest
import torch

from bertkit.evaluate.buckets import frequent_tokens, unigram_loss
from bertkit.evaluate.masked_loss import score_batches
from data_pipelines.masks.batch import PackedBatch

# Four tokens; the logits below give token 0 the probability 1/2 and the others 1/6 each.
LOGITS = torch.tensor([3.0, 1.0, 1.0, 1.0]).log()


def batch(target_ids: list[int], kinds: list[int], starts: list[bool]) -> PackedBatch:
    targets = torch.tensor(target_ids)
    return PackedBatch(
        input_ids=targets,
        position_ids=torch.arange(len(targets)),
        cu_seqlens=torch.tensor([0, len(targets)]).int(),
        max_seqlen=len(targets),
        target_index=torch.arange(len(targets)),
        target_ids=targets,
        target_kind=torch.tensor(kinds),
        target_starts_word=torch.tensor(starts),
    )


def scores(*batches: PackedBatch) -> dict:
    frequent_V = torch.tensor([True, False, False, False])
    return score_batches(target_logits, batches, frequent_V, torch.device("cpu"))


def target_logits(batch: PackedBatch) -> torch.Tensor:
    return LOGITS.expand(len(batch.target_ids), 4)


def test_scores_by_hand():
    found = scores(batch([0, 1, 0], [0, 0, 1], [True, True, False]), batch([2], [2], [False]))
    assert found["targets"] == 4
    assert found["loss"] == pytest.approx((2 * math.log(2) + 2 * math.log(6)) / 4)
    assert found["perplexity"] == pytest.approx(math.sqrt(12))
    assert found["accuracy"] == pytest.approx(0.5)
    buckets = {name: (bucket["targets"], bucket["accuracy"]) for name, bucket in found["buckets"].items()}
    assert buckets == {
        "masked": (2, 0.5),
        "random": (1, 1.0),
        "kept": (1, 0.0),
        "frequent": (2, 1.0),
        "rare": (2, 0.0),
        "first_piece": (2, 0.5),
        "later_piece": (2, 0.5),
    }


def test_the_split_into_batches_does_not_matter():
    whole = scores(batch([0, 1, 2], [0, 1, 2], [True, False, True]))
    parts = scores(batch([0], [0], [True]), batch([1, 2], [1, 2], [False, True]))
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    assert parts["buckets"].keys() == whole["buckets"].keys()


def test_no_targets_is_no_number():
    assert math.isnan(scores()["loss"])
    assert scores()["buckets"] == {}


def test_frequent_tokens_are_the_fewest_that_make_half_of_the_text():
    assert frequent_tokens(np.array([0, 4, 1, 3])).tolist() == [False, True, False, False]
    assert frequent_tokens(np.array([3, 3, 3, 1])).tolist() == [True, True, False, False]


def test_the_unigram_loss_is_the_entropy_of_the_counts():
    assert unigram_loss(np.array([5, 5, 0])) == pytest.approx(math.log(2))
    assert unigram_loss(np.array([7])) == 0
