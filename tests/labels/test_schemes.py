"""Schemes are recognised, converted without losing a span, and told from plain tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines.labels.schemes import Span, iob2_tags, recognise, spans_of, stray_insides, to_iob2

SPANS = [Span("PER", 0, 2), Span("PER", 2, 3), Span("LOC", 4, 7)]
IOB2 = ["B-PER", "I-PER", "B-PER", "O", "B-LOC", "I-LOC", "I-LOC"]
IOB1 = ["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-LOC", "I-LOC"]
BIOES = ["B-PER", "E-PER", "S-PER", "O", "B-LOC", "I-LOC", "E-LOC"]
BILOU = ["B-PER", "L-PER", "U-PER", "O", "B-LOC", "I-LOC", "L-LOC"]


@pytest.mark.parametrize(("tags", "scheme"), [(IOB2, "iob2"), (IOB1, "iob1"), (BIOES, "bioes"), (BILOU, "bioes")])
def test_a_scheme_is_recognised_and_converted_without_losing_a_span(tags, scheme):
    assert recognise([tags]) == scheme
    assert spans_of(tags) == SPANS
    assert to_iob2(tags) == IOB2


@pytest.mark.parametrize("tags", [["NOUN", "VERB"], ["O", "O"], ["B-PER", "NOUN"], ["S", "V", "O"], ["B-"]])
def test_plain_tags_are_not_taken_for_spans(tags):
    assert recognise([tags]) == "plain"


def test_a_few_broken_rules_do_not_make_iob2_another_scheme():
    assert recognise([IOB2, IOB2, ["O", "I-PER", "O"]]) == "iob2"
    assert stray_insides(["O", "I-PER", "I-PER", "I-LOC", "B-LOC", "I-LOC"]) == [1, 3]
    assert to_iob2(["O", "I-PER", "I-LOC"]) == ["O", "B-PER", "B-LOC"]


def test_an_absent_value_of_conllu_is_outside():
    assert recognise([["_", "B-PER", "I-PER", "_"]]) == "iob2"
    assert to_iob2(["_", "B-PER"]) == ["O", "B-PER"]


def test_the_strict_readings_count_only_what_the_rules_allow():
    assert spans_of(["I-PER", "B-LOC", "I-PER"], "iob2") == [Span("LOC", 1, 2)]
    assert spans_of(["B-PER", "I-PER", "S-LOC", "E-LOC"], "bioes") == [Span("LOC", 2, 3)]


@given(st.lists(st.sampled_from([f"{p}-{k}" for p in "BIES" for k in ("A", "B")] + ["O"]), max_size=12))
def test_writing_spans_as_iob2_and_reading_them_gives_them_back(tags):
    spans = spans_of(tags)
    written = iob2_tags(spans, len(tags))
    assert spans_of(written) == spans_of(written, "iob2") == spans
    assert len(written) == len(tags)
