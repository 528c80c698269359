"""The pages of the label clinic show every suspect in its sentence, and text of a stranger's file only as text."""

from bertkit.finetune.predict.inputs import Part
from bertkit.finetune.predict.labeled_text import LabeledText
from bertkit.finetune.predict.outputs import Answer
from bertkit.finetune.predict.tagging import Tagging
from bertkit.report.clinic.ask_page import write_ask_page
from bertkit.report.clinic.errors_page import write_errors_page


def suspect(**other):
    values = {
        "place": "train.conll:7",
        "unit": "word",
        "text": "<b>",
        "given": "<i>",
        "probability": 0.01,
        "suggested": "NOUN",
        "suggested_probability": 0.97,
        "likely": True,
        "words": [1, 2],
        "sentence": ["see", "<b>", "\x1b[31m", "there"],
    }
    return values | other


def test_suspects_are_shown_in_their_sentence_and_escaped(tmp_path):
    span = suspect(unit="span", suggested_text="<b> there", suggested_words=[1, 4], likely=False, given="O")
    many = [suspect(place=f"train.conll:{line}") for line in range(600)]
    found = {
        "units": {
            "word": {"labels": 900, "suspected": 600, "likely_wrong": 600},
            "span": {"labels": 9, "suspected": 1, "likely_wrong": 0},
        },
        "folds": 3,
        "confusions": [["word", "<i>", "NOUN", 600]],
        "suspects": [*many, span],
    }
    write_errors_page(tmp_path / "page.html", found, ["<train>.conll"])
    page = (tmp_path / "page.html").read_text()
    for told in ("600 of 900 words", "&lt;train&gt;.conll", "<mark>&lt;b&gt;</mark>", "● train.conll:499", "97%"):
        assert told in page
    assert "first 500 of 600" in page
    assert "NOUN (&lt;b&gt; there)" in page
    for never in ("<i>", "\x1b", "train.conll:500"):
        assert never not in page


def test_what_is_worth_labelling_is_shown_with_doubtful_tags_marked(tmp_path):
    words = Tagging(["<b>", "runs"], ["B-<i>", "O"], [0.4, 0.95])
    pair = LabeledText(["one <u>", "two"], {"label": "same", "confidence": 0.51})
    several = LabeledText(["three"], {"labels": ["x"], "confidences": {"y": 0.2, "x": 0.7}})
    chosen = [Answer(Part("", place=f"f:{line}"), result) for line, result in enumerate([words, pair, several])]
    write_ask_page(tmp_path / "page.html", chosen, "<runs>", "sentences")
    page = (tmp_path / "page.html").read_text()
    for told in ("&lt;runs&gt;", "3 sentences", "f:0", "B-&lt;i&gt;", "40%", "one &lt;u&gt;", "51%", "0.67 nats"):
        assert told in page
    assert page.index("70%") < page.index("20%")
    for never in ("<i>", "<u>", "95%"):
        assert never not in page
