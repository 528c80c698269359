"""Logits of rows to labels of words, by the rules of their scheme where it is known."""

import numpy as np
import pytest
import torch

from bertkit.finetune.answers import predict_labels
from bertkit.finetune.windows import Row
from data_pipelines.labels.sentence import Sentence

IOB = ("O", "B-a", "I-a")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"format": 1}, ["O", "B-a", "I-a"]),
        ({"format": 1, "legal_spans": False}, ["O", "I-a", "I-a"]),
        ({"format": 1, "scheme": "plain"}, ["O", "I-a", "I-a"]),
        ({}, ["O", "I-a", "I-a"]),
    ],
)
def test_tags_keep_the_rules_of_their_scheme_where_it_is_known(settings, expected):
    """Folders of other makers do not tell IOB1 from IOB2, so theirs stay as they are."""
    logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 0.0, 9.0]])
    sentence = Sentence(["x", "y", "z"], None, "", [])
    row = Row(np.arange(3), np.arange(3), np.arange(3), 0)
    ((tags, sure),) = predict_labels(lambda rows: iter([([0], logits)]), [sentence], [row], IOB, settings)
    assert tags == expected
    assert len(sure.words) == 3
    if sure.spans is not None:
        assert 0 < sure.spans[1, 3] < 1
