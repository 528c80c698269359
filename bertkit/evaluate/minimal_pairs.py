"""Files of minimal pairs as their benchmarks publish them to pairs of sentences, each with its paradigm and group.

JSON Lines of BLiMP, SLING, ZhoBLiMP or your own, TSV and CSV with or without names above the columns, and lines of
`good@@@bad`; each also gzipped, and folders of them.
"""

import csv
import glob
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.evaluate.config import PairKeys
from data_pipelines.text.lines import read_lines, suffix_of

KEYS = {
    "good": ("sentence_good", "good_sentence", "good", "acceptable", "grammatical"),
    "bad": ("sentence_bad", "bad_sentence", "bad", "unacceptable", "ungrammatical"),
    "paradigm": ("UID", "uid", "paradigm"),
    "group": ("linguistics_term", "phenomenon", "group", "category"),
}
"""What benchmarks call the parts of a pair, in the order of a TSV without names."""
_IN_FOLDERS = (".jsonl", ".tsv", ".csv")
_SEPARATOR = "@@@"


class MinimalPair(NamedTuple):
    good: str
    bad: str
    paradigm: str
    """What the pair tests; the name of its file where nothing says it."""
    group: str
    """The phenomenon that paradigms share; empty where nothing says it."""
    place: str
    """file:line"""


def read_pairs(sources: list[str], keys: PairKeys, max_pairs: int = 0) -> list[MinimalPair]:
    """All pairs of files, folders and globs; with `max_pairs` the first ones of each paradigm."""
    pairs: list[MinimalPair] = []
    counts: dict[str, int] = {}
    for path in find_pair_files(sources):
        for record, place in _records(path):
            pair = _pair(record, place, path, keys)
            counts[pair.paradigm] = counts.get(pair.paradigm, 0) + 1
            if not max_pairs or counts[pair.paradigm] <= max_pairs:
                pairs.append(pair)
    if not pairs:
        raise ValueError(f"there are no pairs in {', '.join(sources)}")
    return pairs


def find_pair_files(sources: list[str]) -> list[Path]:
    """The files that these names refer to, each once."""
    found: dict[Path, None] = {}
    for source in sources:
        path = Path(source).expanduser()
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file() and suffix_of(file) in _IN_FOLDERS)
            if not files:
                raise ValueError(f"the folder {source} holds no {' '.join(_IN_FOLDERS)} file (nor one of them as .gz)")
        elif path.is_file():
            files = [path]
        else:
            files = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
            if not files:
                raise ValueError(f"there is no file or folder {source!r} of minimal pairs")
        found |= dict.fromkeys(files)
    return list(found)


def _records(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The records of a file by the names of its columns or keys, each with its file:line."""
    lines = ((line.text, f"{path}:{line.number}") for line in read_lines(path, "strict", cut_long=False))
    if suffix_of(path) in (".jsonl", ".json"):
        yield from ((_parsed(text, place), place) for text, place in lines if text.strip())
        return
    names: list[str] = list(KEYS)
    for number, (text, place) in enumerate(lines):
        if not text.strip():
            continue
        cells = next(csv.reader([text])) if suffix_of(path) == ".csv" else text.split("\t")
        if len(cells) == 1 and _SEPARATOR in text:
            cells = text.split(_SEPARATOR)
        if number == 0 and any(cell in known for cell in cells for known in KEYS.values()):
            names = cells
        else:
            yield dict(zip(names, cells, strict=False)), place


def _parsed(text: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"{place}: a pair is an object with two sentences, got {str(record)[:80]}")
    return record


def _pair(record: Mapping[str, Any], place: str, path: Path, keys: PairKeys) -> MinimalPair:
    parts = {}
    for name, usual in KEYS.items():
        chosen = getattr(keys, name)
        key = chosen or next((key for key in usual if key in record), None)
        value = record.get(key) if key else None
        if (name in ("good", "bad") or chosen) and (not isinstance(value, str) or not value.strip()):
            there = ", ".join(name for name, text in record.items() if isinstance(text, str)) or "nothing"
            raise ValueError(
                f"{place}: no text under {chosen or ' or '.join(usual)}, but under {there}; --{name} names the key"
            )
        parts[name] = value if isinstance(value, str) else ""
    return MinimalPair(
        good=parts["good"],
        bad=parts["bad"],
        paradigm=parts["paradigm"] or path.name.removesuffix(".gz").removesuffix(suffix_of(path)),
        group=parts["group"],
        place=place,
    )
