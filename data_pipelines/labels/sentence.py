"""What labeled files hold: sentences, or records that are read as sentences."""

from typing import Any, NamedTuple

Record = tuple[dict[str, Any], int]
"""Values by key, and the number of their line or row."""


class Sentence(NamedTuple):
    """Words, and where they were read. A text with one label is one word with one tag."""

    words: list[str]
    tags: list[str] | None
    """One a word; None in text that nobody has tagged."""
    source: str
    lines: list[int]
    """Line of each word; a dataset counts rows."""
    text: str | None = None
    """The running text, where the source has it."""
    offsets: list[tuple[int, int]] | None = None
    """Place of each word in the text, where they are known."""

    def place(self, index: int = 0) -> str:
        return f"{self.source}:{self.lines[index]}" if self.lines else self.source


def checked_tag(tag: str, place: str) -> str:
    if not tag or tag.isspace():
        raise ValueError(f"{place}: the tag is empty")
    return tag
