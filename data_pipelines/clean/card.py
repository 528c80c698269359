"""What a corpus is like, before anyone trains on it: sizes, scripts, repeats, frequent phrases, odd characters."""

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.decision import judge, repeats_of
from data_pipelines.clean.findings import NEARLY_REPEATED, REPEATED, shorten
from data_pipelines.clean.languages import identifier, is_installed
from data_pipelines.clean.near import signature
from data_pipelines.clean.rules import COUNTS, Text
from data_pipelines.clean.words import text_hash
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import Document, read_documents

NGRAMS = (1, 2, 3)
"""Words in the runs that are counted."""
_MAX_NGRAMS, _SHOWN = 200_000, 30
_ODD_KINDS = {
    "Cc": "control",
    "Cf": "invisible",
    "Co": "private use",
    "Cn": "unassigned",
    "Cs": "half of a pair",
}


@dataclass
class Card:
    documents: int = 0
    words: int = 0
    characters: int = 0
    lengths: list[int] = field(default_factory=lambda: [0] * (len(COUNTS) + 1))
    """Documents by their number of words; the borders are `rules.COUNTS`."""
    longest: dict[str, Any] = field(default_factory=dict)
    scripts: dict[str, int] = field(default_factory=dict)
    """Letters of each script, such as LATIN or CJK, the most frequent one first."""
    repeated: int = 0
    """Documents that repeat an earlier one word for word."""
    nearly_repeated: int = 0
    """Documents that nearly repeat an earlier one, by the usual threshold of cleaning."""
    repeated_lines: int = 0
    """Lines that occur again within their document."""
    lines: int = 0
    languages: dict[str, int] | None = None
    """Documents of each language by its ISO code, the most frequent one first; None without the package py3langid."""
    ngrams: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    """By length in words: the most frequent n-grams, and how often each occurs at least."""
    odd: list[tuple[str, str, str, int]] = field(default_factory=list)
    """Characters that prose hardly has: code point, kind, name, how often."""

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def describe(corpus: CorpusConfig, progress: Callable[[int], None]) -> Card:
    """Read the corpus once, in memory that does not grow with it: what is compared is on disk."""
    card, characters, languages = Card(), Counter[str](), Counter[str]()
    ngrams = {size: Counter[str]() for size in NGRAMS}
    language_of = identifier() if is_installed() else None
    config = CleanConfig()
    with TemporaryDirectory(prefix="bertkit-card-") as name:
        folder = Path(name)
        with open(folder / "hashes", "wb") as hashes, open(folder / "signatures", "wb") as signatures:
            for document in read_documents(corpus):
                text = Text.of(document.text)
                _count(card, document, text)
                characters.update(document.text)
                words = text.words
                for size, counts in ngrams.items():
                    _count_ngrams(counts, words, size)
                if language_of is not None:
                    languages[language_of(document.text)] += 1
                hashes.write(text_hash(text.hashes_W).tobytes())
                signatures.write(signature(text.hashes_W, config.near_ngram).tobytes())
                progress(card.characters)
        repeats = repeats_of(judge(folder / "hashes", folder / "signatures", config, folder)[0])
    card.repeated, card.nearly_repeated = (
        repeats[reason].num_units if reason in repeats else 0 for reason in (REPEATED, NEARLY_REPEATED)
    )
    card.ngrams = {size: counts.most_common(_SHOWN) for size, counts in ngrams.items()}
    card.languages = None if language_of is None else dict(languages.most_common())
    card.scripts = _scripts(characters)
    card.odd = _odd(characters)
    return card


def _count(card: Card, document: Document, text: Text) -> None:
    card.documents += 1
    card.words += text.num_words
    card.characters += len(document.text)
    card.lengths[bisect_right(COUNTS, text.num_words)] += 1
    card.lines += len(text.lines)
    card.repeated_lines += len(text.lines) - len(set(text.lines))
    if text.num_words > card.longest.get("words", -1):
        card.longest = {"words": text.num_words, "place": document.place, "text": shorten(document.text)}


def _count_ngrams(counts: Counter[str], words: list[str], size: int) -> None:
    """In bounded memory: when there are too many, the rarer half is forgotten, so a count is the least it can be."""
    counts.update(words if size == 1 else map(" ".join, zip(*(words[at:] for at in range(size)), strict=False)))
    if len(counts) > _MAX_NGRAMS:
        kept = counts.most_common(_MAX_NGRAMS // 2)
        counts.clear()
        counts.update(dict(kept))


def _scripts(characters: Counter[str]) -> dict[str, int]:
    found = Counter[str]()
    for character, count in characters.items():
        if character.isalpha():
            found[_script(character)] += count
    return dict(found.most_common())


@cache
def _script(character: str) -> str:
    """As the Unicode name of a letter begins: LATIN, CYRILLIC, CJK."""
    return unicodedata.name(character, "UNKNOWN").split()[0]


def _odd(characters: Counter[str]) -> list[tuple[str, str, str, int]]:
    found = []
    for character, count in characters.most_common():
        kind = _ODD_KINDS.get(unicodedata.category(character))
        if character == "\N{REPLACEMENT CHARACTER}":
            kind = "was unreadable"
        if kind is not None and character not in "\n\t\r":
            found.append((f"U+{ord(character):04X}", kind, unicodedata.name(character, ""), count))
    return found[:_SHOWN]


def length_ranges() -> list[tuple[int, int | None]]:
    """From and to how many words each bar of `Card.lengths` counts."""
    return [*pairwise([0, *COUNTS]), (COUNTS[-1], None)]
