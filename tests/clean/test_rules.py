"""Each rule drops what it is about and leaves prose alone; each threshold is a key."""

import dataclasses

import pytest

from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.rules import RULES, Text, failed_rule, measures

PROSE = (
    "The harbour was quiet in the early morning, and only a few boats had left for the open sea.\n"
    "An old man sat on the wall and mended his net while gulls circled above the empty market.\n"
    "Nobody spoke; the wind carried a smell of salt and tar through the narrow streets of the town, "
    "where the first shutters opened and somebody began to sweep the steps of a small church."
)


def reason(text, **settings):
    config = CleanConfig(**settings)
    return failed_rule(measures(Text.of(text), config), config)


def test_prose_stays():
    assert reason(PROSE) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("too short to say anything", "number of words"),
        ("a b c d e f g h i j " * 6, "length of words"),
        ("pneumonoultramicroscopic " * 60, "length of words"),
        (PROSE + " 12 34 56 78 90" * 8, "words with letters"),
        (PROSE + " #tag" * 12, "symbols"),
        ("\n".join(f"- {part}" for part in PROSE.replace("\n", " ").split(",")), "bullets"),
        (PROSE.replace(".", "...").replace("\n", "…\n"), "ellipses"),
        (PROSE + "\nRead more here today" * 5, "repeated lines"),
        (PROSE + " buy now" * 20, "repeated pair of words"),
        (PROSE + "\n" + PROSE.replace("\n", " "), "repeated runs of words"),
        (PROSE + " Lorem ipsum dolor.", "forbidden phrase"),
    ],
)
def test_a_rule_drops_what_it_is_about(text, expected):
    assert reason(text) == expected


@pytest.mark.parametrize("bold", ["**Harbour** and sea", "-5 degrees", "*emphasis* matters"])
def test_a_bullet_is_followed_by_a_space(bold):
    config = CleanConfig()
    assert measures(Text.of(f"{bold}\n{bold} again"), config)["bullets"] == 0


def test_chinese_is_measured_by_its_characters():
    text = "春天到了，河边的柳树长出新芽，孩子们在草地上放风筝，老人坐在长椅上晒太阳。" * 1
    text += "远处的山还留着一点雪，风从湖面吹来，带着泥土和花的气味，城里的人都走出家门。"
    assert reason(text) is None


def test_every_threshold_is_a_key_and_every_rule_has_a_histogram():
    keys = {field.name for field in dataclasses.fields(CleanConfig)}
    for rule in RULES.values():
        assert {rule.at_least, rule.at_most} - {None} <= keys
        assert list(rule.borders) == sorted(rule.borders)


@pytest.mark.parametrize(
    ("settings", "key"),
    [({"min_words": 5, "max_words": 4}, "min_words"), ({"near_threshold": 0.0}, "near_threshold"),
     ({"max_bullets": 1.5}, "max_bullets"), ({"min_word_length": 11.0}, "min_word_length")],
)  # fmt: skip
def test_thresholds_that_cannot_be_are_refused_by_key(settings, key):
    with pytest.raises(ValueError, match=key):
        CleanConfig(**settings)
