"""Where sentences end, by punctuation alone."""

import re
from collections.abc import Iterator

# A run of such characters is looked at once, from its start to its end: a text may hold a hundred thousand dots.
_PERHAPS_END = re.compile(r"(?<![.!?…])[.!?…]+(?![.!?…])[\"'»”’)\]]*(?=\s)|[。！？]+[」』”’）]*")
_SHORT_WORD = re.compile(r"(?:^\d|\b[^\W\d_])\w{0,2}$")


def sentences(text: str) -> list[str]:
    """The sentences of a text without the white space around them; each ends at its punctuation, or with its line.

    None ends at a period after a capitalised word of up to three letters (Mr. Smith) or after a number of up to three
    digits that begins the line (3. Apples). Some should: two sentences that stay together harm less than parts of one.
    """
    return [sentence for line in text.splitlines() for sentence in _sentences_of_line(line.strip())]


def _sentences_of_line(line: str) -> Iterator[str]:
    start = 0
    for found in _PERHAPS_END.finditer(line):
        if found[0] != "." or not _may_be_short_for_something(line, found.start()):
            yield line[start : found.end()].strip()
            start = found.end()
    if rest := line[start:].strip():
        yield rest


def _may_be_short_for_something(line: str, period: int) -> bool:
    word = _SHORT_WORD.search(line, max(0, period - 3), period)
    return word is not None and (word[0][0].isupper() or word[0].isdigit())
