"""The page of judged pairs shows every group and paradigm, and text of a stranger's file only as text."""

import numpy as np

from bertkit.evaluate.judge import Judgment, summary
from bertkit.evaluate.minimal_pairs import MinimalPair
from bertkit.report.judge_page import write_judge_page


def test_paradigms_and_the_worst_mistakes_are_shown_escaped(tmp_path):
    names = [("easy", "verbs"), ("<b>hard", "verbs"), ("lonely", "")]
    pairs = [
        MinimalPair("good <i>one", "bad one", paradigm, group, "f:1") for paradigm, group in names for _ in range(9)
    ]
    scores_P2 = np.array([[-1.0, -2.0]] * 9 + [[-9.5, -1.25]] * 9 + [[-1.0, -1.0]] * 9)
    facts = {"model": "<runs>", "method": "plain", "ngram": None, "unknown_share": 0.0, "chance": 0.5}
    write_judge_page(Judgment(facts | summary(pairs, scores_P2), pairs, scores_P2, None), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for told in (
        "easy ▲",
        "&lt;b&gt;hard ▼",
        ">lonely<",
        "verbs",
        "&lt;runs&gt;",
        "good &lt;i&gt;one",
        "8.25",
        "50.0%",
    ):
        assert told in page
    assert "<i>one" not in page
