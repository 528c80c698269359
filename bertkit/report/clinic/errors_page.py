"""The page of labels that are likely wrong: which labels are confused, and every suspect in its sentence."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertkit.finetune.clinic.suspects import TIMES
from bertkit.report.markup import Html, join, table, tag
from bertkit.report.page import report, section, write_page
from bertkit.terminal import printable

_MOST = 500
"""Suspects that a page shows of each unit; the list has all."""
_AROUND = 25
"""Words to each side of a suspect that are shown of a long sentence."""


def write_errors_page(path: Path, found: dict[str, Any], sources: Sequence[str]) -> None:
    title = ", ".join(
        f"{counts['likely_wrong']:,} of {counts['labels']:,} {unit}s" for unit, counts in found["units"].items()
    )
    heading = f"{title or 'No labels'} likely labeled wrong"
    about = tag("p", f"{printable(', '.join(sources))}; {found['folds']} folds.")
    units = [_unit(unit, [record for record in found["suspects"] if record["unit"] == unit]) for unit in found["units"]]
    sections, lead = [*units, _confusions(found["confusions"])], [about, tag("p", _ABOUT, class_="about")]
    write_page(path, report("finetune --find-errors", heading, lead, sections, title="Labels likely wrong – bertkit"))


_ABOUT = (
    "Every sentence was judged by a model that had not seen it. Listed are the labels with which it does not agree, "
    f"the least probable first. ● marks what is likely wrong: the suggestion is {TIMES} times as probable. It may "
    "be the model that is mistaken."
)


def _confusions(confusions: list[list[Any]]) -> Html | None:
    if not confusions:
        return None
    rows = [
        [printable(given) or "(none)", printable(suggested) or "(none)", unit, f"{count:,}"]
        for unit, given, suggested, count in confusions
    ]
    about = tag("p", "Of what is likely wrong, the most frequent first.", class_="about")
    head = ["given", "suggested", "", "count"]
    return section("Labels confused", about, table("Labels confused", head, rows, class_="settings"), id="confused")


def _unit(unit: str, records: list[dict[str, Any]]) -> Html:
    shown = f"The first {_MOST:,} of {len(records):,}." if len(records) > _MOST else f"{len(records):,} in all."
    rows = [
        [("● " if record["likely"] else "") + printable(record["place"]), *_row(record)] for record in records[:_MOST]
    ]
    head = ["place", "given", "", "suggested", "", f"the {unit} in its sentence" if unit != "text" else "text"]
    return section(
        f"{unit.capitalize()}s, the most suspect first",
        tag("p", shown, class_="about"),
        table(f"Suspect {unit}s", head, rows, class_="settings"),
        id=f"{unit}s",
    )


def _row(record: dict[str, Any]) -> list[Any]:
    place = f" ({printable(record['suggested_text'])})" if "suggested_text" in record else ""
    return [
        tag("s", printable(record["given"]) or "(none)"),
        f"{record['probability']:.0%}",
        tag("b", (printable(record["suggested"]) or "(none)") + place),
        f"{record['suggested_probability']:.0%}",
        _context(record["sentence"], *record["words"]),
    ]


def _context(words: list[str], start: int, end: int) -> Html:
    """The sentence with the suspect marked; only its surroundings, if the sentence is long."""
    first, last = max(0, start - _AROUND), min(len(words), end + _AROUND)
    before, here, after = (" ".join(map(printable, words[a:b])) for a, b in ((first, start), (start, end), (end, last)))
    return join(
        "… " if first else "",
        before,
        " " if before else "",
        tag("mark", here),
        f" {after}",
        " …" if last < len(words) else "",
    )
