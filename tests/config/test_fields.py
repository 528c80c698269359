"""Recipes and flags become checked dataclasses; every mistake names its key and the nearest valid one."""

import argparse
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from telling import tells

from bertkit.config.fields import Sections, add_flags, build, entries, from_flags, override, part, plain
from data_pipelines.bounds import OneOf, Range, check_bounds
from data_pipelines.table import Table

COLORS = Table("color", {"red": "", "green": ""})


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: Annotated[float, Range("(0, 1)")] = 0.5
    """A rate."""

    kind: Literal["soft", "hard"] = "soft"
    """A kind."""

    def __post_init__(self):
        check_bounds(self)


@dataclass(frozen=True, kw_only=True)
class Outer:
    steps: int
    """How many."""

    paths: list[str] = field(default_factory=list)
    """Where."""

    limit: int | None = None
    """At most."""

    fast: bool = False
    """Whether."""

    inner: Inner = field(default_factory=Inner)
    """More."""


def test_yaml_values_and_command_line_text_build_the_same_config():
    typed = build(Outer, {"steps": 1000, "inner": {"rate": 0.25}, "fast": True, "paths": ["a", "b"]})
    values: dict = {}
    for text in ("steps=1e3", "inner.rate=.25", "fast=yes", "paths=[a, b]"):
        override(values, text)
    assert build(Outer, values) == typed
    assert build(Outer, plain(typed)) == typed


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("stps=3", "'stps' … 'steps'"),
        ("inner.rat=3", "'inner.rat' … 'inner.rate'"),
        ("rate=0.3", "'rate' … 'inner.rate'"),
        ("inner.kind=sofft", "inner.kind … soft, hard … 'sofft' … 'soft'"),
        ("inner.rate=nan", "inner.rate … 'nan'"),
        ("inner.rate=2", "inner.rate … (0, 1) … 2.0"),
        ("steps=2.5", "steps … whole number … '2.5'"),
        ("steps=true", "steps … whole number … 'true'"),
        ("steps=010", "steps … '010' … base 8 … '10'"),
        ("steps=-0_12", "steps … '-12'"),
        ("inner.rate=1:30", "inner.rate … '1:30' … base 60"),
        (f"steps={'9' * 5000}", "steps … '999999"),
        (f"steps={'9' * 400}", "steps … '999999"),
        ("steps=1e999", "steps … '1e999'"),
        ("inner.rate=inf", "inner.rate … 'inf'"),
        ("paths=[a", "paths … '[a'"),
        ("fast=maybe", "fast … 'maybe'"),
        ("inner=3", "inner … inner.rate"),
    ],
)
def test_a_mistake_names_its_key(assignment, complaint):
    values: dict = {"steps": 1}
    override(values, assignment)
    with pytest.raises(ValueError) as caught:
        build(Outer, values)
    assert tells(str(caught.value), complaint)


def test_a_missing_key_is_named():
    with pytest.raises(ValueError, match="steps is missing"):
        build(Outer, {})


def test_help_is_the_docstring_under_the_field():
    notes = {entry.key: entry.help for entry in entries(Outer)}
    assert notes["inner.rate"] == "A rate."
    assert notes["steps"] == "How many."


def test_flags_are_read_back_and_named_in_errors():
    parser = argparse.ArgumentParser()
    add_flags(parser, Inner)
    assert from_flags(Inner, parser.parse_args(["--rate", "0.25", "--kind", "hard"])) == Inner(rate=0.25, kind="hard")
    with pytest.raises(ValueError, match=r"^--rate must be in"):
        from_flags(Inner, parser.parse_args(["--rate", "7"]))


@dataclass(frozen=True, kw_only=True)
class Circle:
    shape: Literal["circle"]
    """Round."""

    radius: float = 1.0
    """Half across."""


@dataclass(frozen=True, kw_only=True)
class Square:
    shape: Literal["square"]
    """With corners."""

    side: float
    """Across."""


FIGURES = {"circle": Circle, "square": Square}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    figure: Annotated[Any, Sections("shape", lambda: FIGURES)]
    """What is drawn."""


@dataclass(frozen=True, kw_only=True)
class Colored(Inner):
    color: Annotated[str, OneOf(COLORS)] = "red"
    """A color."""


def test_a_group_is_told_apart_by_its_tag():
    assert build(Drawing, {"figure": {"shape": "circle", "radius": 2}}) == Drawing(
        figure=Circle(shape="circle", radius=2.0)
    )
    for values, complaint in (
        ({"figure": {"shape": "square", "radius": 2}}, "unknown key 'figure.radius'"),
        (
            {"figure": {"shape": "sqare"}},
            "figure.shape … circle, square … 'sqare' … 'square'",
        ),
        ({"figure": {"shape": "square"}}, "figure.side is missing"),
        ({"figure": {}}, "figure.shape … circle, square"),
        ({}, "figure.shape … circle, square"),
    ):
        with pytest.raises(ValueError) as caught:
            build(Drawing, values)
        assert tells(str(caught.value), complaint)


def test_the_keys_of_every_possible_group_are_listed():
    keys = [entry.key for entry in entries(Drawing)]
    assert keys == ["figure.shape", "figure.radius", "figure.shape", "figure.side"]


def test_inherited_fields_bring_their_help_and_can_be_taken_out_again():
    assert {entry.key: entry.help for entry in entries(Colored)} == {
        "rate": "A rate.",
        "kind": "A kind.",
        "color": "A color.",
    }
    assert part(Colored(rate=0.25, color="green"), Inner) == Inner(rate=0.25)


def test_choices_of_a_table_are_listed_and_checked_as_it_stands_now():
    (color,) = [entry for entry in entries(Colored) if entry.key == "color"]
    assert color.choices == ("red", "green")
    with pytest.raises(ValueError, match=r"color.*red, green.*'gren'.*'green'"):
        build(Colored, {"color": "gren"})
    COLORS.add("blue", "")
    assert color.choices == ("red", "green", "blue")
    assert build(Colored, {"color": "blue"}).color == "blue"


def test_a_kind_of_group_that_is_added_has_its_keys_at_once(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Line:
        shape: Literal["line"]
        """Without width."""

        length: float = 1.0
        """From end to end."""

    monkeypatch.setitem(FIGURES, "line", Line)
    assert build(Drawing, {"figure": {"shape": "line", "length": "2"}}).figure == Line(shape="line", length=2.0)
    assert {entry.key: entry.help for entry in entries(Drawing)}["figure.length"] == "From end to end."


def test_an_object_lists_the_keys_of_the_groups_that_it_has():
    assert [entry.key for entry in entries(Drawing(figure=Square(shape="square", side=2)))] == [
        "figure.shape",
        "figure.side",
    ]


def test_a_typo_is_told_before_what_is_missing():
    for values in ({"inner": {"rat": 3}}, {"inner": {"rate": "much"}}, {"fast": "perhaps"}):
        with pytest.raises(ValueError, match=r"did you mean|must be"):
            build(Outer, values)


def test_a_path_of_the_users_home_is_found_there(monkeypatch):
    monkeypatch.setenv("HOME", "/home/anna")
    outer = build(Outer, {"steps": 1, "paths": ["~/text.txt", "a/~/b", "~"]})
    assert outer.paths == ["/home/anna/text.txt", "a/~/b", "~"], "a folder called ~ is nobody's wish"
