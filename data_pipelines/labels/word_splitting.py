"""Splits raw text into words with their places, as a labeled corpus does."""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise, product
from typing import Any

from data_pipelines.text.characters import IDEOGRAPHS, KANA, UNSPACED

Places = list[tuple[int, int]]
"""(start, end) of each word, in characters."""
Examples = list[tuple[list[str], str]]
"""The words and the running text of sentences."""

_MAX_TOGETHER = 2000
_MAX_CACHED = 1 << 17
_LOOKED_AT = 1000
_LONG_WORD = 6


@dataclass(frozen=True, kw_only=True)
class SplitRule:
    """How text is split into words: at spaces, and around punctuation unless told otherwise."""

    punctuation: bool = True
    """Whether punctuation is split from words."""

    hyphens: bool = False
    """Whether well-known is three words."""

    clitics: bool = False
    """Whether n't, 's, 'll and the like are words."""

    together: frozenset[str] = frozenset()
    """Words with punctuation in them that stay whole, such as U.S. or :-)"""

    segmenter: str | dict[str, str] | None = None
    """What splits strings without spaces in place of all that: the name of a segmenter, or a learned one."""

    def to_json(self) -> dict[str, Any]:
        values = {**self.__dict__, "together": sorted(self.together)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "SplitRule":
        return cls(**{**values, "together": frozenset(values["together"])})


class WordSplitter:
    """Splits by a rule, and remembers how each string between two spaces was split."""

    def __init__(self, rule: SplitRule, segmenter: Callable[[str], Iterable[str]] | None = None):
        self.rule = rule
        self._segment = _learned(rule.segmenter) if isinstance(rule.segmenter, dict) else segmenter
        assert rule.segmenter is None or self._segment, "a named segmenter is given by the caller"
        self._known: dict[str, Places] = {}

    def places(self, text: str) -> Places:
        """Start and end of each word; only white space is between them."""
        found: Places = []
        for match in _CHUNK.finditer(text):
            chunk, at = match[0], match.start()
            places = self._known.get(chunk)
            if places is None:
                places = self._split(chunk)
                if len(self._known) < _MAX_CACHED:
                    self._known[chunk] = places
            if len(places) == 1:
                found.append((at, at + len(chunk)))
            else:
                found += [(at + start, at + end) for start, end in places]
        return found

    def words(self, text: str) -> list[str]:
        return [text[start:end] for start, end in self.places(text)]

    def _split(self, chunk: str) -> Places:
        if self._segment:
            return list(pairwise(accumulate(map(len, self._segment(chunk)), initial=0)))
        if not self.rule.punctuation or chunk in self.rule.together:
            return [(0, len(chunk))]
        places: Places = []
        at = 0
        while at < len(chunk):
            end = self._whole_from(chunk, at) or _parts(self.rule.hyphens).match(chunk, at).end()  # type: ignore[union-attr]
            clitic = _CLITIC.match(chunk, at, end) if self.rule.clitics else None
            if clitic and chunk[at:end] not in self.rule.together:
                places += [(at, clitic.start(1)), (clitic.start(1), end)]
            else:
                places.append((at, end))
            at = end
        return places

    def _whole_from(self, chunk: str, at: int) -> int | None:
        """The end of the longest word in `together` that begins here; only punctuation may follow it."""
        if not self.rule.together:
            return None
        end = len(chunk)
        while end > at:
            if chunk[at:end] in self.rule.together:
                return end
            if chunk[end - 1].isalnum():
                return None
            end -= 1
        return None


def _learned(weights: dict[str, Any]) -> Callable[[str], Iterable[str]]:
    from data_pipelines.labels.segmenter import LearnedSegmenter  # here, because numpy takes longer than any error may

    return LearnedSegmenter.from_json(weights)


def learn_rule(sentences: Iterable[tuple[Sequence[str], str | None]]) -> SplitRule:
    """The rule that best reproduces the words of a corpus from its text; where words have no spaces between them, a
    segmenter learned from them.

    Where the text is unknown, it is written as usual: no space before a comma or a 's, or between Chinese words.
    """
    sentences = list(sentences)
    # Evenly from the whole corpus: its first sentences are often all of one kind.
    sample = sentences[:: max(1, len(sentences) // _LOOKED_AT)]
    examples = [(list(words), text or written_out(words)) for words, text in sample]
    if _is_unspaced(examples):
        from data_pipelines.labels.segmenter import learn_segmenter

        runs = (run for words, text in sentences for run in _runs(words, text or written_out(words)))
        return SplitRule(segmenter=learn_segmenter(runs).to_json())
    rules = [SplitRule(punctuation=False)]
    rules += [SplitRule(hyphens=hyphens, clitics=clitics) for hyphens, clitics in product((False, True), repeat=2)]
    best = max(rules, key=lambda rule: _agreement(rule, examples))
    if not best.punctuation:
        return best
    splitter = WordSplitter(best)
    seen = Counter(word for words, _ in sentences for word in words)
    torn = [word for word, count in seen.most_common() if count > 1 and len(splitter.words(word)) > 1]
    kept = [word for word in torn if not any(char.isspace() for char in word)][:_MAX_TOGETHER]
    return replace(best, together=frozenset(kept))


def written_out(words: Sequence[str]) -> str:
    """Words as running text."""
    text = ""
    opened = True
    for word in words:
        glued = opened or bool(_CLOSING.fullmatch(word) or _UNSPACED.match(word) or _UNSPACED.match(text[-1:]))
        text += word if glued else f" {word}"
        opened = word in ("(", "[", "{")
    return text


def looks_unsplit(text: str, num_words: int) -> bool:
    """Whether words of a script without spaces are so long that they must be whole sentences."""
    return not text.isascii() and len(_UNSPACED.findall(text)) > _LONG_WORD * num_words


def _is_unspaced(examples: Examples) -> bool:
    """Whether most words touch each other without a space, letter next to letter."""
    glued = apart = 0
    for words, text in examples:
        runs = list(_runs(words, text))
        glued += sum(a[-1].isalnum() and b[0].isalnum() for run in runs for a, b in pairwise(run))
        apart += max(len(runs) - 1, 0)
    return glued > apart


def _runs(words: Sequence[str], text: str) -> Iterator[list[str]]:
    """The words of a text in runs that no space interrupts; nothing where the text is another one."""
    run: list[str] = []
    runs, at = [run], 0
    for word in words:
        start = text.find(word, at) if word else -1
        if start < 0 or text[at:start].strip():
            return
        if start > at and run:
            runs.append(run := [])
        run.append(word)
        at = start + len(word)
    yield from runs


def _agreement(rule: SplitRule, examples: Examples) -> float:
    """F1 of the rule's words against the corpus's, regardless of order."""
    splitter = WordSplitter(rule)
    right = made = given = 0
    for words, text in examples:
        found = splitter.words(text)
        right += sum((Counter(found) & Counter(words)).values())
        made += len(found)
        given += len(words)
    return 2 * right / max(made + given, 1)


_CHUNK = re.compile(r"\S+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_CLITIC = re.compile(r".*?[^\W\d_](n['’]t|['’](?:s|m|d|re|ve|ll))$", re.IGNORECASE)
_CLOSING = re.compile(r"[.,;:!?)\]}%]|\.\.\.|n['’]t|['’](?:s|m|d|re|ve|ll)?", re.IGNORECASE)


@cache
def _parts(hyphens: bool) -> re.Pattern[str]:
    """What a word can be, the first match wins: address, name with @ or #, number, initials, emoji, one Chinese or
    Japanese character, letters, a repeated mark, any one character."""
    marks = _marks()
    letter = rf"[^\s{marks}{IDEOGRAPHS}{KANA}]"
    joint = "['’]" if hyphens else "['’‐-]"
    emoji = "[\U0001f000-\U0001faff☀-➿⬀-⯿]"
    return re.compile(
        r"(?:https?://|www\.)\S*[\w/]|[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+|[@#]\w+"
        r"|\d+(?:[.,:/]\d+)+|(?:[^\W\d_]\.){2,}"
        rf"|{emoji}(?:[\ufe0f\U0001f3fb-\U0001f3ff]|\u200d{emoji})*"
        rf"|[{IDEOGRAPHS}{KANA}]|{letter}+(?:{joint}{letter}+)*|([.!?=*_~-])\1+|.",
        re.DOTALL,
    )


@cache
def _marks() -> str:
    """All punctuation and symbols, for a character class; \\w would break words at combining marks."""
    ranges: list[list[int]] = []
    for code in range(min(0x1FB00, sys.maxunicode)):
        if unicodedata.category(chr(code))[0] in "PS":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
