"""CoNLL: a word a line, its columns separated by tabs or by spaces, a blank line after each sentence."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import Fill, LabelFormat
from data_pipelines.labels.schemes import parse
from data_pipelines.labels.sentence import Sentence, check_word, checked_tag
from data_pipelines.text.lines import Line

_NO_TAG = {"O", "_", "-", "*", "?", "-X-"}
"""What files write where a tag is still missing."""
_DOCUMENT = ("#begin document", "# newdoc")
"""Comments with which a document begins."""


def read_columns(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    """The sentences. The settings name the columns, or a line # global.columns = ... does. A document begins where a
    line says so, or after several blank lines."""
    names = [name.lower() for name in config.columns]
    separator, width, first = None, 0, 0
    word_at = tag_at = 0
    words: list[str] = []
    tags: list[str] = []
    numbers: list[int] = []
    follows, blanks = False, 0
    for text, number, _ in lines:
        blanks = 0 if text.strip() else blanks + 1
        if blanks or text.startswith("-DOCSTART-"):
            if words:
                yield Sentence(words, tags if tagged else None, source, numbers, follows=follows)
                words, tags, numbers, follows = [], [], [], True
            follows &= blanks == 1
            continue
        if separator is None and not _is_comment(text, None, 0):
            separator = _separator(text)
            width, first = len(_cells(text, separator)), number
            word_at, tag_at = _columns(config, names, width, tagged, f"{source}:{number}")
        if not words and _is_comment(text, separator, width):
            follows &= not text.startswith(_DOCUMENT)
            if text.startswith("# global.columns"):
                names = _column_names(text)
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
            check_word(cells[word_at], f"{source}:{number}")
        words.append(cells[word_at])
        numbers.append(number)
    if words:
        yield Sentence(words, tags if tagged else None, source, numbers, follows=follows)


def fill_columns(config: TaggedConfig, labels: Collection[str]) -> Fill:
    """Puts tags into the column of tags. A file whose last column holds other things than tags gets a column more."""
    names = [name.lower() for name in config.columns]
    separator, tag_at = "", 0

    def fill(lines: Sequence[Line], sentence: Sentence) -> Iterator[str]:
        nonlocal names, separator, tag_at
        tags = dict(zip(sentence.lines, sentence.tags or (), strict=True))
        for line in lines:
            if line.text.startswith("# global.columns"):
                names = _column_names(line.text)
        if not separator:
            words = [line.text for line in lines if line.number in tags]
            separator = _separator(words[0])
            rows = [_cells(text, separator) for text in words]
            tag_at = _column_to_fill(config, names, rows, labels, sentence.place())
        for text, number, _ in lines:
            yield _filled(text, separator, tag_at, tags[number]) if number in tags else text
        if lines[-1].text.strip():
            yield ""  # the file ends without the blank line that ends a sentence

    return fill


def write_columns(sentences: Iterable[Sentence], config: TaggedConfig) -> Iterator[str]:
    """A word and its tag a line, always: what would break the line or the columns becomes a space."""
    for sentence in sentences:
        rows = zip(sentence.words, sentence.tags or (), strict=True)
        yield "".join(f"{one_line(word)}\t{tag}\n" for word, tag in rows) + "\n"


def has_columns(lines: Iterable[Line], config: TaggedConfig, labels: Collection[str]) -> bool:
    """Whether lines are words in columns, each with a tag that is among the labels."""
    rows = [
        _cells(line.text, _separator(line.text))
        for line in lines
        if line.text.strip() and not line.text.startswith(("-DOCSTART-", "# "))
    ]
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        return False
    names = [name.lower() for name in config.columns]
    try:
        tag_at = _tag_column(config, names, widths.pop(), "")
    except ValueError:
        return False
    return all(row[tag_at] in _NO_TAG or _is_label(row[tag_at], labels) for row in rows)


def one_line(text: str) -> str:
    return " ".join(text.splitlines() or [""]).replace("\t", " ")


def _column_to_fill(
    config: TaggedConfig, names: list[str], rows: list[list[str]], labels: Collection[str], place: str
) -> int:
    """The column of tags; one more than there are for a new one."""
    width = len(rows[0])
    wanted = _wanted_tags(config, names, width)
    if wanted in (str(width + 1), *names[width : width + 1]):
        return width
    if wanted != "-1":
        return column_of(wanted, names, width, "tag_column", place)
    tags = [row[-1] for row in rows if row[-1] not in _NO_TAG]
    has_tags = width > 1 and (not tags or any(_is_label(tag, labels) for tag in tags))
    return width - 1 if has_tags else width


def _is_label(tag: str, labels: Collection[str]) -> bool:
    """Whether the tag is one of the labels, or would be in their scheme."""
    parsed = parse(tag)
    return tag in labels or (parsed is not None and f"B-{parsed[1]}" in labels)


def _filled(text: str, separator: str, tag_at: int, tag: str) -> str:
    """The line with another cell there; between cells all stays as it is."""
    parts = re.split("(\t)" if separator == "\t" else "( +)", text)
    cells = [index for index in range(0, len(parts), 2) if separator == "\t" or parts[index]]
    if tag_at == len(cells):
        return f"{text.rstrip(' ') if separator == ' ' else text}{separator}{tag}"
    parts[cells[tag_at]] = tag
    return "".join(parts)


def _separator(text: str) -> str:
    return "\t" if "\t" in text else " "


def _column_names(text: str) -> list[str]:
    return text.partition("=")[2].lower().split()


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
    tag_at = _tag_column(config, names, width, place)
    if word_at == tag_at:
        raise ValueError(f"{place}: column {word_at + 1} of {width} cannot hold both words and tags; set tag_column")
    return word_at, tag_at


def _tag_column(config: TaggedConfig, names: list[str], width: int, place: str) -> int:
    return column_of(_wanted_tags(config, names, width), names, width, "tag_column", place)


def _wanted_tags(config: TaggedConfig, names: list[str], width: int) -> str:
    """The last column, unless another one is named. Beside words a column without a name can hold nothing else."""
    nameless = not names and width <= 2 and not _is_number(config.tag_column)
    return "-1" if nameless else config.tag_column or "-1"


def _is_number(column: str) -> bool:
    return re.fullmatch(r"-?\d+", column) is not None


def column_of(wanted: str, names: list[str], width: int, key: str, place: str) -> int:
    if _is_number(wanted):
        index = int(wanted) - 1 if int(wanted) > 0 else width + int(wanted)
        if int(wanted) == 0 or not 0 <= index < width:
            raise ValueError(f"{place}: {key}={wanted}, but there are {width} columns; the first is 1, the last -1")
        return index
    if wanted.lower() in names[:width]:
        return names.index(wanted.lower())
    nameless = f"the {width} columns have no names; use a number, such as -1 for the last, or set columns"
    known = f"the columns are {', '.join(names)}" if names else nameless
    raise ValueError(f"{place}: {key}={wanted}: {known}")


CONLL = LabelFormat(sentences=read_columns, filler=fill_columns, write=write_columns)
