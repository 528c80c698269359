"""The pages of the label clinic show every suspect in its sentence, and text of a stranger's file only as text."""

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
