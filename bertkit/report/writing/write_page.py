"""The page of rewritten texts: what each pass decided, token by token with its confidence, and where it looked."""

from collections.abc import Iterable
from pathlib import Path

from bertkit.finetune.writing.explained import Explained
from bertkit.report.markup import Html, join, tag
from bertkit.report.page import report, section, write_page
from bertkit.terminal import printable

MOST = 30
"""Texts that a page shows, the first ones."""
_WIDE, _HIGH = 30, 34
_INK = "#1f5fa8"


def write_write_page(path: Path, shown: Iterable[tuple[str, Explained]], model: str) -> None:
    """Each text with what it was made of, the sources in their order."""
    parts = [_text(source, explained, number) for number, (source, explained) in enumerate(shown, start=1)]
    heading = f"How {printable(model)} wrote {len(parts)} text{'s' if len(parts) != 1 else ''}"
    about = "The darker a token, the surer it was when it was chosen; struck out is what was masked again."
    write_page(path, report("write", heading, [tag("p", about)], parts, title="Rewritten texts – bertkit"))


def _text(source: str, explained: Explained, number: int) -> Html:
    rows = [_pass(*one, y=index * _HIGH) for index, one in enumerate(explained.passes)]
    width = _WIDE * max(len(tokens) for tokens, *_ in explained.passes)
    passes = _drawing(rows, width, _HIGH * len(rows), "What each pass decided, with its confidence")
    return section(printable(source), _caption(len(rows)), passes, *_attention(explained), id=f"text-{number}")


def _caption(num_passes: int) -> Html:
    several = f"Passes 1 to {num_passes}, from top to bottom." if num_passes > 1 else "Token by token."
    return tag("p", several, class_="about")


def _pass(tokens: list[str], sure: list[float], kept: list[bool], y: int) -> Html:
    return join(
        *(
            _cell(index * _WIDE, y, printable(token), share, struck=not stays)
            for index, (token, share, stays) in enumerate(zip(tokens, sure, kept, strict=True))
        )
    )


def _cell(x: int, y: int, token: str, share: float, struck: bool = False) -> Html:
    return tag(
        "g",
        tag("title", f"{token} {share:.1%}{', masked again' if struck else ''}"),
        tag("rect", x=x, y=y, width=_WIDE - 1, height=_HIGH - 1, fill=_INK, fill_opacity=f"{0.8 * share:.3f}"),
        _label(x, y + 14, token, struck),
        tag("text", f"{share:.0%}", x=x + _WIDE / 2, y=y + 28, font_size=9, text_anchor="middle", fill="currentColor"),
    )


def _label(x: int, y: int, token: str, struck: bool = False) -> Html:
    # What is wider than a cell is squeezed into it, so that no label covers its neighbour.
    squeezed = {"textLength": _WIDE - 3, "lengthAdjust": "spacingAndGlyphs"} if len(token) > 3 else {}
    decoration = "line-through" if struck else None
    place = {"x": x + _WIDE / 2, "y": y, "font_size": 12, "text_anchor": "middle", "fill": "currentColor"}
    return tag("text", _shortened(token), **place, **squeezed, text_decoration=decoration)


def _shortened(token: str) -> str:
    return token if len(token) <= 6 else f"{token[:5]}…"


def _attention(explained: Explained) -> list[Html]:
    """Rows are tokens of the target, columns those of the source."""
    target = explained.passes[-1][0]
    head = [_label((index + 1) * _WIDE, 14, printable(token)) for index, token in enumerate(explained.source)]
    rows = []
    for number, (token, weights) in enumerate(zip(target, explained.attention, strict=True), start=1):
        y = number * 20
        highest = max(float(weights.max()), 1e-9)
        cells = [
            tag(
                "rect",
                tag("title", f"{printable(token)} → {printable(seen)}: {weight:.1%}"),
                x=(index + 1) * _WIDE,
                y=y,
                width=_WIDE - 1,
                height=19,
                fill=_INK,
                fill_opacity=f"{0.9 * float(weight) / highest:.3f}",
            )
            for index, (seen, weight) in enumerate(zip(explained.source, weights, strict=True))
        ]
        rows.append(join(_label(0, y + 14, printable(token)), *cells))
    size = (_WIDE * (len(explained.source) + 1), 20 * (len(rows) + 1))
    about = "Where each token of the text looked in the source: the mean of all heads and blocks, each row by its peak."
    return [tag("p", about, class_="about"), _drawing([*head, *rows], *size, "Attention from target to source")]


def _drawing(parts: list[Html], width: int, height: int, name: str) -> Html:
    drawn = tag("svg", parts, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", aria_label=name)
    return tag("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=name)
