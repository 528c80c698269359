"""What labeled files hold: sentences, or records to make them from."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Record = tuple[dict[str, Any], int]
"""Values by key, and the number of their line or row."""


class Sentence(NamedTuple):
    """Words, their tags, and where they were read. Of labeled texts the words are one whole text, or two, and the tags
    all that is known of it: a label, several or a number."""

    words: list[str]
    tags: list[str] | None
    """One for each word; None where the text has no tags."""
    source: str
    lines: list[int]
    """Line of each word; in a dataset, its row."""
    text: str | None = None
    """The running text, where the source has it."""
    offsets: list[tuple[int, int]] | None = None
    """Start and end of each word in the text, where the words were cut out of it; None where the source has words."""
    record: Mapping[str, Any] | None = None
    """What it was read from, where other fields of a record are to be kept."""
    scores: Mapping[tuple[int, int], float] | None = None
    """Probability of each span, by its first word and the one after its last, where a model gave the tags."""

    follows: bool = False
    """Whether it comes after the sentence before it in the same document."""
    native: Any = None
    """What a file that is not text has in its place, where that is to be written again with other tags."""

    def place(self, index: int = 0) -> str:
        return f"{self.source}:{self.lines[index]}" if self.lines else self.source


def checked_tag(tag: str, place: str) -> str:
    if not tag or tag.isspace():
        raise ValueError(f"{place}: the tag is empty")
    return tag


def check_word(word: str, place: str) -> None:
    """In labeled data a word that is not there is a slip; in text to be tagged it gets its tag."""
    if not word:
        raise ValueError(f"{place}: the word is empty; remove it and its tag, or write the word")
