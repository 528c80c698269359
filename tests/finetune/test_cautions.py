"""A doubtful result says so: below a baseline, of unknown text, after few steps, on sentences that were trained on."""

from types import SimpleNamespace

import numpy as np
import pytest

from bertkit.finetune.cautions import cautions
from bertkit.finetune.labeled import Labeled
from bertkit.finetune.tasks.tagging import TAGGING
from bertkit.finetune.tuning_data import Steps, TuningData
from bertkit.finetune.windows import Row, RowForm
from data_pipelines.labels.sentence import Sentence

UNKNOWN = 9
TRAIN = [Sentence(["a", "sentence", "of", "the", "training", "data"], ["O"] * 6, "train.conll", [1, 2, 3, 4, 5, 6])]


def told(
    mean: float = 0.9,
    unknown: int = 0,
    steps: int = 500,
    dev: list[Sentence] | None = None,
    baseline: float = 0.8,
    train: list[Sentence] = TRAIN,
) -> list[str]:
    """Warnings of a run whose training row has so many unknown subwords of 100."""
    ids = np.concatenate([[1], np.full(unknown, UNKNOWN), np.full(100 - unknown, 5), [2]])
    rows = [Row(ids, np.zeros(1, int), np.zeros(1, int), 0)]
    start = SimpleNamespace(tokenizer=SimpleNamespace(special=SimpleNamespace(unk_id=UNKNOWN)))
    form = RowForm(np.array([1]), np.array([2]), 200)
    labeled = Labeled(train, dev or [], [], ("O",), (), {"scheme": "plain"})
    data = TuningData(TAGGING, labeled, start, form, {"train": rows, "dev": [], "test": []})
    results = {"score": "accuracy", "dev": {"mean": mean, "baselines": {"by word": {"accuracy": baseline}}}}
    return cautions(data, Steps(32, steps), results)


def test_nothing_is_said_where_all_is_well():
    assert told() == []
    assert told(mean=1.0, baseline=1.0) == []
    assert told(unknown=2, steps=50, dev=[Sentence(["thanks"], ["O"], "dev.conll", [1])]) == []


def test_a_chinese_sentence_is_long_with_fewer_characters():
    data = [Sentence(["昨天", "老师", "来到", "北京", "的", "学校", "。"], ["O"] * 7, "a.conll", [1] * 7)]
    assert told(dev=data) == []
    assert "1 of 1" in told(dev=data, train=data)[0]


@pytest.mark.parametrize(
    ("case", "numbers"),
    [
        ({"mean": 0.8}, ["dev accuracy", "80.00%", "'by word'"]),
        ({"mean": 0.7}, ["70.00%", "80.00%"]),
        ({"unknown": 3}, ["data.train", "3.0%"]),
        ({"steps": 49}, ["49", "train.epochs"]),
        ({"dev": TRAIN}, ["data.dev", "1 of 1", "train.conll:1"]),
    ],
)
def test_each_doubt_is_told_alone_with_its_numbers(case, numbers):
    (text,) = told(**case)
    for number in numbers:
        assert number in text
