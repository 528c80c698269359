"""A labeled file or dataset enters, sentences leave: words with a tag each, or a text with one label.

Every sentence knows file and line of each word, so that whatever is wrong with a tag later can be said with its place.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.schemes import Span, iob2_tags
from data_pipelines.labels.word_splitting import SplitRule, WordSplitter
from data_pipelines.text.hub import load_hub
from data_pipelines.text.readers import Line, read_lines


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


CONLLU_COLUMNS = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
_WORD_KEYS = ("tokens", "words", "sentence", "form")
_TAG_KEYS = ("tags", "ner_tags", "pos_tags", "upos", "labels", "ner", "pos", "chunk_tags")
_SPAN_KEYS = ("spans", "entities", "label", "labels")
_LABEL_KEYS = ("label", "labels", "class", "category", "sentiment")
_TEXT_KEYS = ("text", "sentence", "content")
# Text that comes with spans is split by this rule, which its tagger then remembers.
SPAN_RULE = SplitRule()


def read_tagged(source: str, config: TaggedConfig, *, split: str = "train", tagged: bool = True) -> Iterator[Sentence]:
    """The sentences of a CoNLL, CoNLL-U or JSON Lines file (each also .gz), or of a dataset (hf:NAME or a folder).

    `split` is the part of a dataset that is read where its name says none. Without `tagged` the tags may be missing.
    """
    path = Path(source)
    if source.startswith("hf:") or path.is_dir():
        yield from _read_dataset(source, config, split, tagged)
        return
    check_source(source)
    lines = read_lines(path, config.errors, cut_long=False)
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix == ".conllu":
        yield from read_conllu(lines, source, config, tagged)
    elif suffix in (".jsonl", ".json", ".ndjson"):
        yield from read_json_sentences(lines, source, config, tagged)
    else:
        yield from read_columns(lines, source, config, tagged)


def read_labeled_texts(
    source: str, config: TaggedConfig, *, split: str = "train", tagged: bool = True
) -> Iterator[Sentence]:
    """Texts with one label each: JSON Lines, CSV or TSV with a header line, or a dataset."""
    path = Path(source)
    if source.startswith("hf:") or path.is_dir():
        records = _dataset_records(source, split)
    else:
        check_source(source)
        lines = read_lines(path, config.errors, cut_long=False)
        suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
        records = _csv_records(lines, source, suffix) if suffix in (".csv", ".tsv") else json_records(lines, source)
    for record, line in records:
        place = f"{source}:{line}"
        text = _value(record, config.word_column, _TEXT_KEYS, "word_column", place)
        if not isinstance(text, str):
            raise ValueError(f"{place}: the text must be text, got {type(text).__name__}")
        tags = None
        if tagged or _key(record, config.tag_column, _LABEL_KEYS) in record:
            label = _value(record, config.tag_column, _LABEL_KEYS, "tag_column", place)
            if isinstance(label, (list, dict)) or label is None or label == "":
                raise ValueError(f"{place}: a text has one label, got {label!r}")
            tags = [str(label)]
        yield Sentence([text], tags, source, [line])


def check_source(source: str) -> None:
    """Refuse what is neither a dataset on the hub nor here. Nothing is opened and no network is used."""
    path = Path(source)
    if not source.startswith("hf:") and not path.is_file() and not path.is_dir():
        hint = f"; for the Hugging Face dataset of that name write hf:{source}" if "." not in path.name else ""
        raise ValueError(f"there is no file {source!r}{hint}")


def read_columns(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool = True) -> Iterator[Sentence]:
    """CoNLL: a word a line, its columns separated by tabs or by spaces, a blank line after each sentence."""
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
            tags.append(_tag(cells[tag_at], f"{source}:{number}"))
        words.append(cells[word_at])
        numbers.append(number)
    if words:
        yield Sentence(words, tags if tagged else None, source, numbers)


def read_conllu(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool = True) -> Iterator[Sentence]:
    """CoNLL-U: the syntactic words. Lines for multiword ranges (3-4) and empty nodes (3.1) carry no word of their
    own and are passed over."""
    word_at = _conllu_column(config.word_column or "form", source)[0]
    tag_at, key = _conllu_column(config.tag_column or "upos", source)
    sentence = Sentence([], [] if tagged else None, source, [])
    text = None
    for line, number, _ in lines:
        if not line.strip():
            if sentence.words:
                yield sentence._replace(text=text)
            sentence, text = Sentence([], [] if tagged else None, source, []), None
            continue
        if line.startswith("#"):
            if line.startswith("# text ="):
                text = line.partition("=")[2].strip()
            continue
        cells = line.split("\t")
        if len(cells) != len(CONLLU_COLUMNS):
            raise ValueError(f"{source}:{number}: {len(cells)} columns where CoNLL-U has {len(CONLLU_COLUMNS)}")
        if not cells[0].isdecimal():
            if re.fullmatch(r"\d+[-.]\d+", cells[0]):
                continue
            raise ValueError(f"{source}:{number}: the first column must number the word, got {cells[0]!r}")
        sentence.words.append(cells[word_at])
        sentence.lines.append(number)
        if sentence.tags is not None:
            value = cells[tag_at]
            tag = _inner_value(value, key) if key else _tag(value, f"{source}:{number}")
            sentence.tags.append(tag)
    if sentence.words:
        yield sentence._replace(text=text)


def read_json_sentences(
    lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool = True
) -> Iterator[Sentence]:
    """JSON Lines: {"tokens": [...], "tags": [...]}, or {"text": ..., "spans": [{"start":, "end":, "label":}]}."""
    splitter = WordSplitter(SPAN_RULE)
    for record, line in json_records(lines, source):
        yield _sentence_of(record, line, source, config, tagged, splitter)


def _sentence_of(
    record: Mapping[str, Any], line: int, source: str, config: TaggedConfig, tagged: bool, splitter: WordSplitter
) -> Sentence:
    place = f"{source}:{line}"
    words = record.get(_key(record, config.word_column, _WORD_KEYS))
    if isinstance(words, (list, tuple)):
        for word in words:
            if not isinstance(word, str):
                raise ValueError(f"{place}: a word must be text, got {word!r}")
        tags = None
        if tagged or _key(record, config.tag_column, _TAG_KEYS) in record:
            tags = _value(record, config.tag_column, _TAG_KEYS, "tag_column", place)
            if not isinstance(tags, (list, tuple)) or len(tags) != len(words):
                given = f"{len(tags)} tags" if isinstance(tags, (list, tuple)) else repr(tags)
                raise ValueError(f"{place}: {len(words)} words need as many tags, got {given}")
            tags = [_tag(str(tag), place) for tag in tags]
        return Sentence(list(words), tags, source, [line] * len(words))
    text = record.get("text")
    if not isinstance(text, str):
        raise ValueError(f"{place}: expected tokens and tags, or a text with spans; the keys are {', '.join(record)}")
    offsets = splitter.places(text)
    words = [text[start:end] for start, end in offsets]
    tags = None
    if tagged or _key(record, config.tag_column, _SPAN_KEYS) in record:
        spans = _value(record, config.tag_column, _SPAN_KEYS, "tag_column", place)
        tags = span_tags(text, offsets, spans, place)
    return Sentence(words, tags, source, [line] * len(words), text, offsets)


def span_tags(text: str, offsets: Sequence[tuple[int, int]], spans: Any, place: str) -> list[str]:
    """IOB2 tags of the words that character spans touch; a word half inside a span belongs to it."""
    if not isinstance(spans, (list, tuple)):
        raise ValueError(f"{place}: spans must be a list, got {str(spans)[:80]}")
    found: list[Span] = []
    for span in sorted(_character_span(span, len(text), place) for span in spans):
        start, end, label = span
        touched = [index for index, (left, right) in enumerate(offsets) if left < end and right > start]
        if not touched:
            raise ValueError(f"{place}: the span {start}-{end} ({label}) holds no word")
        if found and found[-1].end > touched[0]:
            raise ValueError(f"{place}: the span {start}-{end} ({label}) overlaps the one before it")
        found.append(Span(label, touched[0], touched[-1] + 1))
    return iob2_tags(found, len(offsets))


def _character_span(span: Any, length: int, place: str) -> tuple[int, int, str]:
    if isinstance(span, Mapping):
        start, end = span.get("start"), span.get("end")
        label = span.get("label", span.get("type"))
    elif isinstance(span, (list, tuple)) and len(span) == 3:
        start, end, label = span
    else:
        start = end = label = None
    whole = isinstance(start, int) and isinstance(end, int) and isinstance(label, str)
    if not whole or not 0 <= start < end <= length:  # type: ignore[operator]
        raise ValueError(
            f"{place}: a span is {{start, end, label}} or [start, end, label] within the {length} characters of "
            f"the text, got {str(span)[:80]}"
        )
    return start, end, label  # type: ignore[return-value]


def _read_dataset(source: str, config: TaggedConfig, split: str, tagged: bool) -> Iterator[Sentence]:
    splitter = WordSplitter(SPAN_RULE)
    for record, row in _dataset_records(source, split):
        yield _sentence_of(record, row, source, config, tagged, splitter)


def _dataset_records(source: str, split: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Rows of a Hugging Face dataset, numbers of labels replaced by their names."""
    import datasets

    folder = Path(source)
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        rows = datasets.load_from_disk(str(folder))
        if isinstance(rows, datasets.DatasetDict):
            if split not in rows:
                raise ValueError(f"{source} has no part {split!r}; its parts are {', '.join(map(str, rows))}")
            rows = rows[split]
    else:
        rows = load_hub(source.removeprefix("hf:"), split)
    names = {}
    for key, feature in rows.features.items():
        feature = getattr(feature, "feature", feature)
        if isinstance(feature, datasets.ClassLabel):
            names[key] = feature.names
    for number, row in enumerate(rows, start=1):
        for key, labels in names.items():
            value = row[key]
            numbers = value if isinstance(value, list) else [value]
            for index in numbers:
                # Parts whose labels are kept secret often hold -1, which Python would read as the last label.
                if index is None or not 0 <= index < len(labels):
                    raise ValueError(f"{source}:{number}: {key} holds {index}, but labels are 0 to {len(labels) - 1}")
            row[key] = [labels[index] for index in numbers] if isinstance(value, list) else labels[value]
        yield row, number


def json_records(lines: Iterable[Line], source: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The objects of JSON Lines with their line numbers."""
    for text, number, _ in lines:
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{source}:{number}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(f"{source}:{number}: expected an object, got {type(record).__name__}")
        yield record, number


def _csv_records(lines: Iterable[Line], source: str, suffix: str) -> Iterator[tuple[dict[str, Any], int]]:
    delimiter = "\t" if suffix == ".tsv" else ","
    records = csv.DictReader((line.text + "\n" for line in lines), delimiter=delimiter, strict=suffix == ".csv")
    try:
        for record in records:
            if None in record or None in record.values():
                raise ValueError(f"{source}:{records.line_num}: another number of columns than the header line")
            yield record, records.line_num
    except csv.Error as error:
        raise ValueError(f"{source}:{records.line_num}: not CSV: {error}") from None


def _is_comment(text: str, separator: str | None, width: int) -> bool:
    """A line before a sentence that starts with # and cannot be a word: #hashtag and # are words in many corpora."""
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
    word_at = _column(config.word_column or "1", names, width, "word_column", place)
    if not tagged:
        return word_at, word_at
    tag_at = _column(config.tag_column or "-1", names, width, "tag_column", place)
    if word_at == tag_at:
        raise ValueError(f"{place}: column {word_at + 1} of {width} cannot hold both words and tags; set tag_column")
    return word_at, tag_at


def _column(wanted: str, names: list[str], width: int, key: str, place: str) -> int:
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


def _conllu_column(wanted: str, source: str) -> tuple[int, str]:
    name, _, key = wanted.partition(":")
    return _column(name, CONLLU_COLUMNS, len(CONLLU_COLUMNS), "tag_column", source), key


def _inner_value(value: str, key: str) -> str:
    """The value of one key of FEATS or MISC; _ where the word has none."""
    for part in value.split("|"):
        name, _, inner = part.partition("=")
        if name == key:
            return inner
    return "_"


def _tag(tag: str, place: str) -> str:
    if not tag or tag.isspace():
        raise ValueError(f"{place}: the tag is empty")
    return tag


def _key(record: Mapping[str, Any], wanted: str, usual: tuple[str, ...]) -> str:
    return wanted or next((key for key in usual if key in record), usual[0])


def _value(record: Mapping[str, Any], wanted: str, usual: tuple[str, ...], setting: str, place: str) -> Any:
    key = _key(record, wanted, usual)
    if key not in record:
        raise ValueError(f"{place}: no key {key!r}; the keys are {', '.join(map(str, record))} (choose one: {setting})")
    return record[key]
