"""One whole HTML document around a body and its data, which loads nothing and runs only our own scripts."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from bertkit.report.markup import Html, join, tag
from data_pipelines.durable import finite, refuse_foreign, replace_file


def report(
    verb: str,
    heading: str,
    lead: Sequence[Html],
    sections: Any,
    *,
    title: str,
    data: Any = None,
    scripts: Sequence[str] = (),
) -> str:
    """A page of `bertkit VERB`: a heading with what belongs below it, then its sections."""
    body = join(
        tag("header", tag("p", f"bertkit {verb}", class_="kicker"), tag("h1", heading), list(lead)),
        tag("main", sections, id="content"),
        tag("footer", tag("p", "Written by bertkit. The page holds all its data and loads nothing.")),
    )
    return document(title, body, {} if data is None else data, scripts)


def document(title: str, body: Html, data: Any, scripts: Sequence[str], programs: Sequence[str] = ()) -> str:
    """The page, with scripts of this room, or programs of another. Its policy names style and scripts by their hashes:
    nothing else can run or be fetched, not even if text of a corpus found a way around the escaping."""
    style = _asset("page.css")
    programs = [*(_asset(name) for name in ["theme.js", *scripts]), *programs]
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src {_hash(style)}",
            f"script-src {' '.join(map(_hash, programs))}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href=_ICON),
        tag("style", Html(style)),
    )
    button = tag("button", "Dark", type="button", id="theme", hidden="")
    content = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        button,
        body,
        tag("script", Html(embedded_json(data)), type="application/json", id="data"),
        [tag("script", Html(program)) for program in programs],
    )
    page = f"<!doctype html>\n{tag('html', head, content, lang='en')}\n"
    assert page.startswith(_BEGINNING), "by this a page is known as ours"
    return page


def embedded_json(data: Any) -> str:
    """JSON for a script element: no `<` that could end it, no NaN that no browser reads."""
    text = json.dumps(finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def check_page(path: Path | None) -> None:
    """Refuse, before the work, to replace a folder, or a file that is not a page of ours."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the file to write the page to")
    refuse_foreign(path, _BEGINNING.encode(), "a page")


def write_page(path: Path, page: str) -> None:
    """Whole or not at all: a page that is open in a browser is never found half written. No link is followed, since
    a page may be in the folder of an untrusted model."""
    check_page(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A lone surrogate can come out of a JSON file, and cannot be written.
    replace_file(path, page.encode(errors="replace"))


def section(title: str, *children: Any, id: str) -> Html:
    return tag("section", tag("h2", title, id=f"{id}-title"), join(*children), id=id, aria_labelledby=f"{id}-title")


def _asset(name: str) -> str:
    return resources.files("bertkit.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_BEGINNING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src"""
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M2 3c3 9 6 9 12 10' fill='none' stroke='%231f5fa8' stroke-width='2.5' stroke-linecap='round'/%3E"
    "%3C/svg%3E"
)
