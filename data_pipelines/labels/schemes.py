"""Tag schemes: IOB1, IOB2, BIOES and plain tags are recognised, read as spans, and converted to IOB2."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Scheme = Literal["plain", "iob1", "iob2", "bioes"]
Reading = Literal["lenient", "iob2", "bioes"]

OUTSIDE = "O"
_OUTSIDE = {OUTSIDE, "_"}
"""CoNLL-U writes an absent value as _."""
_PREFIXES = {"B": "B", "I": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}
"""What each prefix means; BILOU and BMEWO are BIOES in other letters."""


class Span(NamedTuple):
    """Words from `start` to before `end`."""

    kind: str
    start: int
    end: int


def recognise(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of a corpus's tags: the one with the fewest broken rules."""
    prefixes: set[str] = set()
    begins = strays = 0
    for tags in sentences:
        before = ("O", "")
        for tag in tags:
            here = parse(tag)
            if here is None:
                return "plain"
            prefixes.add(here[0])
            follows = before[0] != "O" and before[1] == here[1]
            begins += here[0] == "B" and not follows
            strays += here[0] == "I" and not follows
            before = here
    if prefixes & {"E", "S"}:
        return "bioes"
    if not prefixes - {"O"}:
        return "plain"
    # IOB1 begins a span with I-; with B- only directly after another span of the same kind.
    return "iob1" if strays > begins else "iob2"


def parse(tag: str) -> tuple[str, str] | None:
    """(prefix, kind) of a span tag, ("O", "") outside of spans, None for a tag that is neither."""
    if tag in _OUTSIDE:
        return "O", ""
    prefix, dash, kind = tag.partition("-")
    if prefix not in _PREFIXES or (dash and not kind):
        return None
    # A bare B or I is a span without a kind; other single letters are plain tags.
    if not dash and prefix not in ("B", "I"):
        return None
    return _PREFIXES[prefix], kind


def spans_of(tags: Sequence[str], reading: Reading = "lenient") -> list[Span]:
    """The spans that the tags of a sentence mean.

    The lenient reading is that of conlleval: a tag that cannot continue a span begins one. The others count only spans
    that follow the rules of their scheme.
    """
    parsed = [parse(tag) or ("O", "") for tag in tags]
    return {"lenient": _lenient_spans, "iob2": _strict_iob2, "bioes": _strict_bioes}[reading](parsed)


def to_iob2(tags: Sequence[str]) -> list[str]:
    """The same spans in IOB2, whatever their scheme; an I- that begins a span becomes B-."""
    return iob2_tags(spans_of(tags), len(tags))


def iob2_tags(spans: Iterable[Span], num_words: int) -> list[str]:
    tags = [OUTSIDE] * num_words
    for kind, start, end in spans:
        suffix = f"-{kind}" if kind else ""
        tags[start:end] = [f"B{suffix}", *[f"I{suffix}"] * (end - start - 1)]
    return tags


def stray_insides(tags: Sequence[str]) -> list[int]:
    """Words with an I- that continues no span: allowed in IOB1, an error in IOB2."""
    parsed = [("O", ""), *(parse(tag) or ("O", "") for tag in tags)]
    return [
        index
        for index, (before, here) in enumerate(pairwise(parsed))
        if here[0] == "I" and (before[0] == "O" or before[1] != here[1])
    ]


def _lenient_spans(parsed: list[tuple[str, str]]) -> list[Span]:
    spans, start, before = [], None, ("O", "")
    for index, here in enumerate([*parsed, ("O", "")]):
        continues = here[0] in "IE" and before[0] in "BI" and before[1] == here[1]
        if start is not None and not continues:
            spans.append(Span(before[1], start, index))
            start = None
        if here[0] != "O" and not continues:
            start = index
        before = here
    return spans


def _strict_iob2(parsed: list[tuple[str, str]]) -> list[Span]:
    spans = []
    for start, (prefix, kind) in enumerate(parsed):
        if prefix == "B":
            end = start + 1
            while end < len(parsed) and parsed[end] == ("I", kind):
                end += 1
            spans.append(Span(kind, start, end))
    return spans


def _strict_bioes(parsed: list[tuple[str, str]]) -> list[Span]:
    spans = []
    for start, (prefix, kind) in enumerate(parsed):
        end = start + 1
        if prefix == "B":
            while end < len(parsed) and parsed[end] == ("I", kind):
                end += 1
            if end < len(parsed) and parsed[end] == ("E", kind):
                spans.append(Span(kind, start, end + 1))
        elif prefix == "S":
            spans.append(Span(kind, start, end))
    return spans
