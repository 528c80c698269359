"""HTML from names, attributes and text. What is not markup already is escaped, so nothing can be forgotten."""

import html
from typing import Any


class Html(str):
    """Text that is markup already."""


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """One element. Children are text, numbers, markup, or lists of these; None is left out, and so are attributes
    that are None. A Python keyword gets an underscore behind it (class_), a dash is an underscore (aria_label)."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Any) -> Html:
    """Children one after the other, without an element around them."""
    return Html("".join(_written(child) for child in children))


def table(caption: str, head: list[Any], rows: list[list[Any]], class_: str = "numbers") -> Html:
    """A table whose first column names its rows; it scrolls by itself where the screen is narrow."""
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption),
            tag("thead", tag("tr", [tag("th", name, scope="col") for name in head])),
            tag(
                "tbody", [tag("tr", tag("th", row[0], scope="row"), [cell(value) for value in row[1:]]) for row in rows]
            ),
            class_=class_,
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def tiles(values: dict[str, Any]) -> Html:
    """The numbers one looks for first, each under its name."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in values.items()], class_="tiles")


def cell(value: Any) -> Html:
    return value if isinstance(value, Html) and value.startswith("<td") else tag("td", value)


def bar(share: float, class_: str = "") -> Html:
    """A share of 1 as a thin bar; its number is next to it, so screen readers skip it."""
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}"
    return tag(
        "svg",
        tag("rect", class_="track", width=100, height=6, rx=1),
        tag("rect", class_="level", width=width, height=6, rx=1),
        class_=f"bar {class_}".strip(),
        viewBox="0 0 100 6",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def swatch(index: int, name: str) -> Html:
    """The name of a run beside its colour."""
    return tag("span", tag("i", class_=f"swatch {colour(index)}", aria_hidden="true"), name, class_="run-name")


def colour(index: int) -> str:
    """The class that colours a run; there are eight colours, then they come again with another shape."""
    return f"run-{index % 8}" + (" again" if index >= 8 else "")


def absent(reason: str) -> Html:
    """What replaces a part that is left out."""
    return tag("p", f"Left out: {reason}.", class_="absent")


_VOID = {"meta", "link", "br", "input"}


def _written(child: Any) -> str:
    if child is None:
        return ""
    if isinstance(child, (list, tuple)):
        return "".join(map(_written, child))
    return child if isinstance(child, Html) else html.escape(str(child))
