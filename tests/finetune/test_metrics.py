"""Scores equal seqeval's on random tags in both readings, and hand-computed numbers elsewhere."""

import warnings
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.finetune.metrics import (
    confusions,
    mean_and_deviation,
    span_scores,
    unknown_word_scores,
    word_scores,
    worst_sentences,
)


def sequences(prefixes: str):
    kinds = ("PER", "LOC", "creative-work")
    tags = st.sampled_from([f"{prefix}-{kind}" for prefix in prefixes for kind in kinds] + ["O"])
    sentence = st.integers(1, 8).flatmap(
        lambda size: st.tuples(*(st.lists(tags, min_size=size, max_size=size) for _ in range(2)))
    )
    return st.lists(sentence, min_size=1, max_size=5)


def assert_equal_to_seqeval(pairs, scheme=None):
    seqeval = pytest.importorskip("seqeval.metrics")  # here, because it imports scikit-learn
    options = {"mode": "strict", "scheme": getattr(import_module("seqeval.scheme"), scheme)} if scheme else {}
    gold, predicted = [list(a) for a, _ in pairs], [list(b) for _, b in pairs]
    ours = span_scores(gold, predicted, strict=scheme is not None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = {"zero_division": 0, **options}
        assert ours["precision"] == pytest.approx(seqeval.precision_score(gold, predicted, **args))
        assert ours["recall"] == pytest.approx(seqeval.recall_score(gold, predicted, **args))
        assert ours["f1"] == pytest.approx(seqeval.f1_score(gold, predicted, **args))
        if not ours["types"]:
            return
        report = seqeval.classification_report(gold, predicted, output_dict=True, **args)
    for kind, score in ours["types"].items():
        assert score["f1"] == pytest.approx(report[kind]["f1-score"])
        assert score["gold"] == report[kind]["support"]


@settings(deadline=None, max_examples=80)
@given(sequences("BI"))
def test_the_lenient_reading_is_that_of_conlleval(pairs):
    assert_equal_to_seqeval(pairs)


@settings(deadline=None, max_examples=80)
@given(sequences("BIES"))
def test_the_lenient_reading_of_bioes_is_that_of_conlleval(pairs):
    assert_equal_to_seqeval(pairs)


@settings(deadline=None, max_examples=80)
@given(sequences("BI"))
def test_the_strict_reading_is_that_of_iob2(pairs):
    assert_equal_to_seqeval(pairs, scheme="IOB2")


@settings(deadline=None, max_examples=80)
@given(sequences("BIES").filter(lambda pairs: any(tag[0] in "ES" for pair in pairs for tags in pair for tag in tags)))
def test_the_strict_reading_of_bioes(pairs):
    assert_equal_to_seqeval(pairs, scheme="IOBES")


def test_the_two_readings_differ_where_a_span_begins_with_inside():
    gold, predicted = [["B-PER", "I-PER", "O"]], [["I-PER", "I-PER", "O"]]
    assert span_scores(gold, predicted)["f1"] == 1.0
    assert span_scores(gold, predicted, strict=True)["f1"] == 0.0


def test_sentences_do_not_run_into_each_other():
    assert span_scores([["B-A"], ["I-A"]], [["B-A"], ["I-A"]])["gold"] == 2


def test_word_scores_by_hand():
    scores = word_scores([["N", "V", "N"], ["D"]], [["N", "N", "N"], ["D"]])
    assert scores["accuracy"] == 0.75
    # N: 2 right of 3 predicted and 2 gold; V: none; D: one of one
    assert scores["macro_f1"] == pytest.approx((0.8 + 0 + 1) / 3)


def test_unknown_words_are_scored_apart():
    found = unknown_word_scores([["N", "V"], ["N"]], [["N", "N"], ["N"]], [["a", "b"], ["c"]], known={"a"})
    assert found == {"share": 2 / 3, "accuracy": 0.5, "words": 2}


def test_mistakes_are_counted_and_the_worst_sentences_come_first():
    gold, predicted = [["A", "A"], ["A", "B", "B"], ["B"]], [["A", "A"], ["B", "A", "A"], ["A"]]
    assert confusions(gold, predicted) == [("B", "A", 3), ("A", "B", 1)]
    assert worst_sentences(gold, predicted, 5) == [1, 2]


def test_mean_and_deviation_by_hand():
    assert mean_and_deviation([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
    assert mean_and_deviation([0.5]) == (0.5, 0.0)


def test_lost_words_are_no_score():
    with pytest.raises(ValueError, match=r"sentence 2.* 2 gold.* 1"):
        span_scores([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="2 gold sentences, but 1"):
        word_scores([["O"], ["O"]], [["O"]])
