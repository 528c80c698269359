"""Raw text to pairs for a model that restores what was dropped: its capitals, its punctuation, its accents."""

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from data_pipelines import durable
from data_pipelines.table import Table
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.text.digest import text_hash
from data_pipelines.text.sentences import sentences

TRAIN, DEV = "train.tsv", "dev.tsv"
FACTS = "pairs.json"
"""Next to the two, it marks them as ours."""


def _without_punctuation(text: str) -> str:
    """Punctuation becomes a space, but inside a word nothing: don't, 3.14."""
    kept = [
        char if unicodedata.category(char)[0] != "P" else "" if _is_inside(text, place) else " "
        for place, char in enumerate(text)
    ]
    return "".join(kept)


def _is_inside(text: str, place: int) -> bool:
    return text[place - 1 : place].isalnum() and text[place + 1 : place + 2].isalnum()


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(char for char in decomposed if not unicodedata.combining(char)))


DROPS: Table[Callable[[str], str]] = Table(
    "way to drop", {"case": str.lower, "punctuation": _without_punctuation, "accents": _without_accents}
)
"""What can be dropped, by name."""


class PairCounts(NamedTuple):
    train: int
    dev: int
    too_long: int
    """Sentences with more than the most characters, which are left out."""


def write_dropped_pairs(
    corpus: CorpusConfig, drops: Iterable[str], folder: Path, max_chars: int, dev_share: float
) -> PairCounts:
    """Write train.tsv and dev.tsv: each sentence of the corpus once, without what is dropped and as it is. Where it
    goes depends on its text alone. pairs.json says how they were made."""
    counts = {TRAIN: 0, DEV: 0}
    too_long, seen = 0, set()
    names = list(drops)
    with (
        durable.replacing_folder(folder) as unfinished,
        durable.naming(folder),
        open(unfinished / TRAIN, "w", encoding="utf-8") as train,
        open(unfinished / DEV, "w", encoding="utf-8") as dev,
    ):
        for target in _sentences(corpus):
            key = text_hash(target, "pairs")
            source = dropped(target, names)
            if len(target) > max_chars:
                too_long += 1
            elif source and key not in seen:
                seen.add(key)
                name = DEV if key < dev_share * 2**64 else TRAIN
                (dev if name == DEV else train).write(f"{source}\t{target}\n")
                counts[name] += 1
        made = {"corpus": corpus.corpus, "drop": names, "max_chars": max_chars, "dev_share": dev_share}
        durable.write_file(unfinished / FACTS, durable.json_bytes(made | {"too_long": too_long, **counts}))
    return PairCounts(counts[TRAIN], counts[DEV], too_long)


def dropped(text: str, names: Iterable[str]) -> str:
    """The text without what the names say."""
    for name in names:
        text = DROPS[name](text)
    return " ".join(text.split())


def _sentences(corpus: CorpusConfig) -> Iterator[str]:
    for document in read_documents(corpus):
        for sentence in sentences(document.text):
            if any(char.isalpha() for char in sentence):
                yield " ".join(sentence.split())
