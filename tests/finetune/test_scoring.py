"""What a run says of itself: the right numbers for the kind of tags, beside guesses that need no model."""

import pytest

from bertkit.config.finetune import LabeledSection
from bertkit.finetune.labeled import Labeled
from bertkit.finetune.metrics import label_mistakes, training_labels, word_tags
from bertkit.finetune.tasks.classification import CLASSIFICATION
from bertkit.finetune.tasks.tagging import TAGGING
from data_pipelines.labels.sentence import Sentence

SPANS = "anna\tB-PER\nmeets\tO\nboris\tB-PER\n\nrome\tB-LOC\n"
PLAIN = "anna\tNOUN\nmeets\tVERB\nboris\tNOUN\n\nit\tPRON\nmeets\tVERB\nmeets\tNOUN\n"


def labeled(tmp_path, text: str) -> Labeled:
    path = tmp_path / "data.conll"
    path.write_text(text)
    return TAGGING.read(LabeledSection(train=[str(path)], dev=[str(path)]))


def sentence(words: list[str], tags: list[str]) -> Sentence:
    return Sentence(words, tags, "x.conll", list(range(1, len(words) + 1)))


def test_spans_are_scored_in_both_readings_and_f1_decides(tmp_path):
    data = labeled(tmp_path, SPANS)
    assert TAGGING.deciding(data) == "f1"
    gold = [sentence(["anna", "rossi"], ["B-PER", "I-PER"])]
    scores = TAGGING.score(data, gold, [["I-PER", "I-PER"]])
    assert (scores["f1"], scores["strict"]["f1"], scores["accuracy"]) == (1.0, 0.0, 0.5)
    assert scores["types"]["PER"]["gold"] == 1


def test_plain_tags_are_scored_by_word_with_the_unknown_ones_apart(tmp_path):
    data = labeled(tmp_path, PLAIN)
    assert TAGGING.deciding(data) == "accuracy"
    gold = [sentence(["anna", "sings"], ["NOUN", "VERB"])]
    scores = TAGGING.score(data, gold, [["NOUN", "NOUN"]])
    assert scores["accuracy"] == 0.5
    assert scores["unknown"] == {"share": 0.5, "accuracy": 0.0, "words": 1}
    assert "unknown" not in CLASSIFICATION.score(data, gold, [["NOUN", "NOUN"]])


def test_baselines_by_hand(tmp_path):
    data = labeled(tmp_path, PLAIN)
    guesses = TAGGING.baselines(data, data.dev)
    found = {name: TAGGING.score(data, data.dev, guess) for name, guess in guesses.items()}
    assert found["majority tag"]["accuracy"] == pytest.approx(3 / 6)
    # "meets" is twice a verb and once a noun; every other word has one tag.
    assert found["most frequent tag of the word"]["accuracy"] == pytest.approx(5 / 6)


def test_an_unknown_word_gets_the_tag_that_rare_words_have():
    train = [sentence(["the", "the", "the", "cat", "dog", "runs"], ["D", "D", "D", "N", "N", "V"])]
    assert word_tags(training_labels(train), [sentence(["the", "bird"], ["?", "?"])]) == [["D", "N"]]


def test_of_a_long_sentence_the_stretch_with_its_first_mistake_is_shown():
    words = [f"w{i}" for i in range(200)]
    gold, predicted = ["O"] * 200, ["O"] * 150 + ["B-PER"] + ["O"] * 49
    (shown,) = label_mistakes([sentence(words, gold)], [predicted], 5)["worst"]
    at = shown["words"].index("w150")
    assert (shown["gold"][at], shown["predicted"][at]) == ("O", "B-PER")
    assert len(shown["words"]) == len(shown["gold"]) == len(shown["predicted"]) <= 60
    assert shown["place"] == f"x.conll:{words.index(shown['words'][0]) + 1}"


def test_sentences_without_a_mistake_are_not_the_worst():
    right, wrong = sentence(["a", "b"], ["O", "O"]), sentence(["c"], ["B-X"])
    found = label_mistakes([right, wrong], [["O", "O"], ["O"]], 5)
    assert [shown["words"] for shown in found["worst"]] == [["c"]]
    assert found["confusions"] == [("B-X", "O", 1)]
