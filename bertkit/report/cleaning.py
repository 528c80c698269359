"""A page that shows what cleaning a corpus took out: how much, why, examples, and a histogram for each rule."""

from pathlib import Path
from typing import Any

from bertkit.report.markup import Html, bar, table, tag, tiles
from bertkit.report.page import report, section, write_page
from bertkit.terminal import printable
from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.decision import REASONS
from data_pipelines.clean.rules import RULES


def write_cleaning_page(path: Path, facts: dict[str, Any]) -> None:
    config = CleanConfig(**facts["identity"]["clean"])
    name = ", ".join(facts["identity"]["corpus"]["corpus"])
    heading = f"{facts['kept_documents']:,} of {facts['documents']:,} documents stay"
    sections = [
        section("What went, and why", _reasons(facts), id="reasons"),
        section("Languages", _languages(facts, config), id="languages") if facts["languages"] else None,
        section("Examples", *_examples(facts), id="examples"),
        section(
            "Rules",
            tag("p", "Documents by what each rule measures; what it drops is red.", class_="about"),
            tag(
                "div",
                [_histogram(name, facts, config) for name in RULES if name in facts["histograms"]],
                class_="columns",
            ),
            id="rules",
        ),
    ]
    lead = [tag("p", printable(name)), _tiles(facts)]
    write_page(path, report("clean", heading, lead, sections, title=f"{name} – bertkit clean"))


def _tiles(facts: dict[str, Any]) -> Html:
    repeats = sum(facts["dropped"].get(reason, 0) for reason in REASONS)
    values = {
        "documents kept": _percent(facts["kept_documents"], facts["documents"]),
        "characters kept": _percent(facts["kept_characters"], facts["characters"]),
        "repeats dropped": f"{repeats:,}",
        "by rules": f"{sum(facts['dropped'].values()) - repeats:,}",
    }
    if facts["removed_lines"]:
        values["lines removed"] = f"{facts['removed_lines']:,}"
    if facts["private"]:
        values["private data replaced"] = f"{sum(facts['private'].values()):,}"
    return tiles(values)


def _reasons(facts: dict[str, Any]) -> Html:
    unit = facts["identity"]["clean"]["unit"]
    rows = [
        [reason, f"{count:,}", tag("td", bar(count / max(facts["documents"], 1)))]
        for reason, count in sorted(facts["dropped"].items(), key=lambda item: -item[1])
    ]
    rows += [[f"{kind} replaced", f"{count:,}", ""] for kind, count in facts["private"].items()]
    if facts["removed_lines"]:
        rows.append(["lines with text not to be trained on", f"{facts['removed_lines']:,}", ""])
    caption = f"Documents dropped by each rule; repeats in {unit}"
    return table(caption, ["reason", "count", "of all documents"], rows, class_="numbers captioned")


def _languages(facts: dict[str, Any], config: CleanConfig) -> Html:
    """Those that go are marked."""
    total = sum(facts["languages"].values())
    rows = [
        [code, f"{count:,}", tag("td", bar(count / total, "" if code in config.languages else "outside"))]
        for code, count in sorted(facts["languages"].items(), key=lambda item: -item[1])
    ]
    kept = ", ".join(config.languages)
    return table(f"Documents that no rule drops, by language (kept: {kept})", ["language", "documents", ""], rows)


def _examples(facts: dict[str, Any]) -> list[Html]:
    found = [
        tag(
            "details",
            tag("summary", f"{reason} ({facts['dropped'].get(reason, 0):,})"),
            [
                tag(
                    "blockquote",
                    tag("p", printable(example["text"], lines=True)),
                    tag("p", f"Kept instead: {printable(example['kept'], lines=True)}")
                    if example.get("kept")
                    else None,
                    tag("footer", printable(example["place"])),
                )
                for example in examples
            ],
        )
        for reason, examples in facts["examples"].items()
        if examples
    ]
    return found or [tag("p", "Nothing was dropped.")]


def _histogram(name: str, facts: dict[str, Any], config: CleanConfig) -> Html:
    """Documents by what a rule measures; the bars that it drops are marked."""
    rule, counts = RULES[name], facts["histograms"][name]
    low, high = rule.bounds(config)
    starts, ends = [0, *rule.borders], [*rule.borders, None]
    most = max(max(counts), 1)
    rows = []
    for start, end, count in zip(starts, ends, counts, strict=True):
        if count:
            outside = start > high or start == high > 0 or (end is not None and end <= low)
            label = f"from {start:g}" if end is None else f"{start:g} to {end:g}"
            rows.append([label, f"{count:,}", tag("td", bar(count / most, "outside" if outside else ""))])
    keys = [f"{key}={getattr(config, key):g}" for key in (rule.at_least, rule.at_most) if key is not None]
    told = f"{', '.join(keys) or 'none allowed'}; dropped {facts['dropped'].get(name, 0):,}"
    shown = table(f"{name}: documents by value", ["value", "documents", ""], rows)
    return tag("div", tag("h3", name), tag("p", told, class_="about"), shown)


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"
