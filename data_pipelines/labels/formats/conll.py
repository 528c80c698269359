"""CoNLL: a word a line, its columns separated by tabs or by spaces, a blank line after each sentence."""

import re
from collections.abc import Iterable, Iterator

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.sentence import Sentence, checked_tag
from data_pipelines.text.lines import Line


def read_columns(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    """The sentences. The settings name the columns, or a line # global.columns = ... does."""
    names = [name.lower() for name in config.columns]
    separator, width, first = None, 0, 0
    word_at = tag_at = 0
    words: list[str] = []
    tags: list[str] = []
    numbers: list[int] = []
    for text, number, _ in lines:
        if not text.strip() or text.startswith("-DOCSTART-"):
            if words:
                yield Sentence(words, tags if tagged else None, source, numbers)
                words, tags, numbers = [], [], []
            continue
        if separator is None and not _is_comment(text, None, 0):
            separator = "\t" if "\t" in text else " "
            width, first = len(_cells(text, separator)), number
            word_at, tag_at = _columns(config, names, width, tagged, f"{source}:{number}")
        if not words and _is_comment(text, separator, width):
            if text.startswith("# global.columns"):
                names = text.partition("=")[2].lower().split()
            continue
        assert separator is not None
        cells = _cells(text, separator)
        if len(cells) != width:
            raise ValueError(
                f"{source}:{number}: {len(cells)} column{'s' * (len(cells) != 1)} where line {first} has {width}; "
                f"columns are separated by {'tabs' if separator == chr(9) else 'spaces'} here"
            )
        if tagged:
            tags.append(checked_tag(cells[tag_at], f"{source}:{number}"))
        words.append(cells[word_at])
        numbers.append(number)
    if words:
        yield Sentence(words, tags if tagged else None, source, numbers)


def _is_comment(text: str, separator: str | None, width: int) -> bool:
    """Whether a line before a sentence is a comment: #hashtag and # are words in many corpora."""
    if not text.startswith("#"):
        return False
    if text.startswith(("#begin document", "#end document", "# global.columns")):
        return True
    if not text.startswith("# ") or "\t" in text:
        return False
    return separator != " " or " = " in text or len(_cells(text, " ")) != width


def _cells(text: str, separator: str) -> list[str]:
    return text.split("\t") if separator == "\t" else [cell for cell in text.split(" ") if cell]


def _columns(config: TaggedConfig, names: list[str], width: int, tagged: bool, place: str) -> tuple[int, int]:
    word_at = column_of(config.word_column or "1", names, width, "word_column", place)
    if not tagged:
        return word_at, word_at
    tag_at = column_of(config.tag_column or "-1", names, width, "tag_column", place)
    if word_at == tag_at:
        raise ValueError(f"{place}: column {word_at + 1} of {width} cannot hold both words and tags; set tag_column")
    return word_at, tag_at


def column_of(wanted: str, names: list[str], width: int, key: str, place: str) -> int:
    if re.fullmatch(r"-?\d+", wanted):
        index = int(wanted) - 1 if int(wanted) > 0 else width + int(wanted)
        if int(wanted) == 0 or not 0 <= index < width:
            raise ValueError(f"{place}: {key}={wanted}, but there are {width} columns; the first is 1, the last -1")
        return index
    if wanted.lower() in names[:width]:
        return names.index(wanted.lower())
    known = (
        f"the columns are {', '.join(names)}" if names else "the columns have no names; use a number, or set columns"
    )
    raise ValueError(f"{place}: {key}={wanted}: {known}")


CONLL = LabelFormat(sentences=read_columns)
