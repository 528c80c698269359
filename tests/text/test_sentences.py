"""Sentences end at their punctuation or with their line, and hold everything but the white space between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines.text.sentences import sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna paints. Tom reads!  Who sings? Nobody", ["Anna paints.", "Tom reads!", "Who sings?", "Nobody"]),
        ("a house\n\n the tree.\r\nred", ["a house", "the tree.", "red"]),
        ('He said "Come." (She came.) They went...', ['He said "Come."', "(She came.)", "They went..."]),
        ("words apart . like these ? yes", ["words apart .", "like these ?", "yes"]),
        (
            "Mr. Adams of the U.S. Senate. See No. 12. Apples",
            ["Mr. Adams of the U.S. Senate.", "See No. 12.", "Apples"],
        ),
        (" \t3. Apples cost 3.50. We paid 7. Yes", ["3. Apples cost 3.50.", "We paid 7.", "Yes"]),
        ("Prof. Adams", ["Prof.", "Adams"]),
        ("他来了。她说：“走吧！”然后呢？没有", ["他来了。", "她说：“走吧！”", "然后呢？", "没有"]),
        ("version 1.2 of a.b", ["version 1.2 of a.b"]),
        (" \n ", []),
        ("", []),
    ],
)
def test_where_sentences_end(text, expected):
    assert sentences(text) == expected


def test_a_run_of_marks_is_read_once():
    """Over and over it would take minutes."""
    run = ".!?…" * 30_000
    assert sentences(f"{run}x {run}{')' * 100_000}x yes{run} no") == [f"{run}x {run}{')' * 100_000}x yes{run}", "no"]


@given(st.text(st.sampled_from('aB1 .!?…。！”")\n\u2028\t'), max_size=60))
def test_nothing_but_white_space_is_lost(text):
    found = sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() and sentence for sentence in found)
