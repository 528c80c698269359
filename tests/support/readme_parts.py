"""A Markdown file enters; what a test can hold it to leaves: headings, fenced blocks, tables, code in the text."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Part:
    kind: str
    """heading, block, table, image or text."""

    text: str
    """The heading, the inside of the block, the rows of the table, the path of the image, or the line."""

    label: str = ""
    """The level of a heading (#, ##), the info string of a block."""

    section: str = ""
    """The heading above it."""


def read_parts(path: Path) -> list[Part]:
    """The file from top to bottom. Text is a part a line; a table is one part."""
    parts: list[Part] = []
    section = ""
    lines = iter(path.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if fence := re.fullmatch(r"```(\w*)", line):
            inside = []
            for line in lines:
                if line == "```":
                    break
                inside.append(line)
            parts.append(Part("block", "\n".join(inside), fence[1], section))
        elif heading := re.fullmatch(r"(#+) (.+)", line):
            section = heading[2]
            parts.append(Part("heading", section, heading[1], section))
        elif line.startswith("|"):
            if parts and parts[-1].kind == "table":
                parts[-1] = Part("table", f"{parts[-1].text}\n{line}", "", section)
            else:
                parts.append(Part("table", line, "", section))
        elif image := re.fullmatch(r"!\[.*\]\((.+)\)", line):
            parts.append(Part("image", image[1], "", section))
        else:
            # An empty line is kept: it ends a table.
            parts.append(Part("text", line, "", section))
    return parts


def cells(table: str) -> list[list[str]]:
    """Rows of cells, without the line of dashes."""
    rows = [[cell.strip() for cell in row.strip("| ").split("|")] for row in table.splitlines()]
    return [row for row in rows if set("".join(row)) - set(":- ")]


def inline_code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def anchors(path: Path) -> set[str]:
    """What a code host calls the headings of a page in links."""
    headings = [part.text for part in read_parts(path) if part.kind == "heading"]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
