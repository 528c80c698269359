"""Decoding by the rules of a scheme: against every sequence there is, on small cases."""

import itertools

import numpy as np
import pytest

from data_pipelines.labels.decoding import legal_labels, log_likelihood, span_probabilities, tag_rules
from data_pipelines.labels.schemes import spans_of

IOB = ("O", "B-a", "I-a", "B-b", "I-b")
BIOES = ("O", "B-a", "I-a", "E-a", "S-a")
SCHEMES = {"iob2": IOB, "iob1": IOB, "bioes": BIOES}


def allowed_paths(num_words, rules):
    """Every label sequence that the rules allow, word by word as a person would check it."""
    for path in itertools.product(range(len(rules.labels)), repeat=num_words):
        pairs = itertools.pairwise(path)
        if rules.begins_K[path[0]] and rules.ends_K[path[-1]] and all(rules.follows_KK[pair] for pair in pairs):
            yield path


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("num_words", [1, 2, 4])
def test_the_labels_are_the_best_of_all_allowed_sequences(scheme, num_words):
    rules = tag_rules(SCHEMES[scheme], scheme)
    for seed in range(20):
        logits = np.random.default_rng(seed).normal(scale=3, size=(num_words, len(rules.labels)))
        best = max(allowed_paths(num_words, rules), key=lambda path: logits[range(num_words), path].sum())
        assert legal_labels(logits, [num_words], rules).tolist() == list(best)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_probabilities_are_shares_of_all_allowed_sequences(scheme):
    rules, num_words = tag_rules(SCHEMES[scheme], scheme), 4
    for seed in range(10):
        logits = np.random.default_rng(seed).normal(scale=2, size=(num_words, len(rules.labels)))
        weights = {path: np.exp(logits[range(num_words), path].sum()) for path in allowed_paths(num_words, rules)}
        total = sum(weights.values())
        labels = legal_labels(logits, [num_words], rules)
        assert log_likelihood(logits, [num_words], labels, rules) == pytest.approx(np.log(weights[(*labels,)] / total))
        confidences, (spans,) = span_probabilities(logits, [num_words], labels, rules)
        for word, label in enumerate(labels):
            assert confidences[word] == pytest.approx(
                sum(weight for path, weight in weights.items() if path[word] == label) / total
            )
        found = spans_of([rules.labels[label] for label in labels])
        assert set(spans) == {(start, end) for _, start, end in found}
        for span in found:
            has = sum(w for path, w in weights.items() if span in spans_of([rules.labels[label] for label in path]))
            assert spans[span.start, span.end] == pytest.approx(has / total)


def test_sentences_do_not_touch_each_other():
    """Together, in any order, with empty ones between: every sentence gets what it gets alone."""
    rules, random = tag_rules(IOB, "iob2"), np.random.default_rng(0)
    counts = [3, 0, 7, 1, 0, 20, 2]
    parts = [random.normal(scale=3, size=(count, len(IOB))) for count in counts]
    logits = np.concatenate(parts)
    labels = legal_labels(logits, counts, rules)
    confidences, spans = span_probabilities(logits, counts, labels, rules)
    at = 0
    for index, (count, part) in enumerate(zip(counts, parts, strict=True)):
        if count:
            alone = legal_labels(part, [count], rules)
            assert labels[at : at + count].tolist() == alone.tolist()
            confidence, (its_spans,) = span_probabilities(part, [count], alone, rules)
            np.testing.assert_allclose(confidences[at : at + count], confidence)
            assert spans[index] == pytest.approx(its_spans)
        else:
            assert spans[index] == {}
        at += count


def test_what_is_allowed_already_stays_as_it_is():
    rules = tag_rules(IOB, "iob2")
    labels = np.array([0, 1, 2, 2, 0, 3, 4])
    assert legal_labels(np.eye(5)[labels] * 9.0, [7], rules).tolist() == labels.tolist()


def test_an_inside_that_continues_nothing_is_mended_by_its_probability():
    rules = tag_rules(IOB, "iob2")
    logits = np.array([[2.0, 1.9, 0, 0, 0], [0, 0, 5.0, 0, 0]])
    assert [IOB[label] for label in legal_labels(logits, [2], rules)] == ["B-a", "I-a"]


def test_plain_tags_have_no_rules():
    assert tag_rules(("NOUN", "VERB"), "plain") is None
    assert tag_rules(("NOUN", "VERB"), "iob2") is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_extreme_scores_stay_finite(scheme):
    """A model that is certain of tags that cannot follow each other still gets probabilities."""
    rules = tag_rules(SCHEMES[scheme], scheme)
    for seed in range(20):
        certain = np.random.default_rng(seed).integers(len(rules.labels), size=12)
        logits = np.where(np.eye(len(rules.labels))[certain] > 0, 1e4, -1e4)
        counts = [5, 0, 7]
        labels = legal_labels(logits, counts, rules)
        confidences, spans = span_probabilities(logits, counts, labels, rules)
        assert ((confidences >= 0) & (confidences <= 1)).all()
        assert all(0 <= chance <= 1 for each in spans for chance in each.values())
        assert np.isfinite(log_likelihood(logits, counts, labels, rules)).all()
