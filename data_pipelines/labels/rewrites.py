"""Files of text pairs to sentences: a source text, the target it becomes, and perhaps features of the target.

TSV is read without quoting: source, target and, where a third column is asked for, features. A first line
with the columns' names is recognised. JSON Lines, CSV and datasets name them in each record or in the header.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.dataset import dataset_records
from data_pipelines.labels.formats import FORMATS
from data_pipelines.labels.formats.delimited import check_header
from data_pipelines.labels.sentence import Record, Sentence
from data_pipelines.labels.tagged import is_dataset, lines_of
from data_pipelines.text.lines import Line, suffix_of

SOURCE, TARGET, FEATURES = "source", "target", "features"
_KEYS = {
    SOURCE: (SOURCE, "input", "lemma", "text"),
    TARGET: (TARGET, "output", "form", "correction"),
    FEATURES: (FEATURES, "feats"),
}
"""Under which names files usually have them."""
_SETTINGS = {SOURCE: "word_column", TARGET: "tag_column", FEATURES: "feature_column"}
_BETWEEN_FEATURES = ";"


def read_rewrites(
    source: str, config: TaggedConfig, *, split: str = "train", tagged: bool = True
) -> Iterator[Sentence]:
    """The pairs of a file (.tsv, .jsonl, .csv; also .gz) or a dataset. The words of a sentence are the source and then
    its features; its only tag is the target. Without `tagged` the target may be missing."""
    if is_dataset(source):
        records = dataset_records(source, split)
    else:
        lines = lines_of(source, config)
        found = FORMATS[suffix_of(source)].records if suffix_of(source) in (".jsonl", ".csv") else None
        records = found(lines, source, config) if found else tab_records(lines, source, config, tagged)
    return (_pair_of_record(record, source, line, config, tagged) for record, line in records)


def tab_records(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool = True) -> Iterator[Record]:
    """Rows of columns separated by tabs. Their names: data.columns; those of the first line if it is a header, which
    names the source and, of several columns that are needed, another one; or source, target, features in this order.
    Without `tagged` the target is not needed, and two columns are source and features, where there are features."""
    names = list(config.columns)
    for line in lines:
        cells = line.text.split("\t")
        if not any(cell.strip() for cell in cells):
            continue
        if not names:
            named = [what for what in _KEYS if any(name in cells for name in _wanted(what, config))]
            if SOURCE in named and len(named) >= min(2, len(cells), 1 + tagged + bool(config.feature_column)):
                check_header(cells, source)
                names = cells
                continue
            names = [SOURCE, TARGET, FEATURES] if config.feature_column else [SOURCE, TARGET]
            if not tagged and config.feature_column and len(cells) == 2:
                names = [SOURCE, FEATURES]
        if len(cells) > len(names):
            raise ValueError(
                f"{source}:{line.number}: {len(cells)} columns, but {len(names)} are known ({', '.join(names)}); "
                "data.feature_column=features reads a third one, data.columns names others"
            )
        yield dict(zip(names, cells, strict=False)), line.number


def _pair_of_record(record: Mapping[str, Any], source: str, line: int, config: TaggedConfig, tagged: bool) -> Sentence:
    """A record's source with its features, and its target."""
    place = f"{source}:{line}"
    words = source_of_record(record, config, place)
    target = None
    if tagged or target_key(record, config) in record:
        target = _text(record, TARGET, place, config)
    return Sentence(words, None if target is None else [target], source, [line] * len(words))


def source_of_record(record: Mapping[str, Any], config: TaggedConfig, place: str) -> list[str]:
    """A record's source and then its features."""
    text = _text(record, SOURCE, place, config)
    if not text.strip():
        raise ValueError(f"{place}: the source is empty; remove the line, or write the text")
    return [text, *(_features(record, place, config) if config.feature_column else ())]


def target_key(record: Mapping[str, Any], config: TaggedConfig) -> str:
    """The key under which a record has its target, or would have it."""
    return _name(record, TARGET, config)


def split_source(text: str, features: bool) -> list[str]:
    """A line to its source and, after a tab, the features where a model knows any."""
    source, *rest = text.split("\t")
    if len(rest) > features:
        expected = "its source and, after a tab, the features" if features else "its source, without features"
        raise ValueError(f"{len(rest) + 1} columns, but a line is {expected}")
    return [source, *(part for text in rest for part in _split_features(text))]


def _split_features(text: str) -> list[str]:
    """ "V;PST;3" as a list."""
    return [part.strip() for part in text.split(_BETWEEN_FEATURES) if part.strip()]


def _features(record: Mapping[str, Any], place: str, config: TaggedConfig) -> list[str]:
    value = record.get(_name(record, FEATURES, config))
    if isinstance(value, str):
        return _split_features(value)
    if isinstance(value, list) and all(isinstance(part, str) and part for part in value):
        return value
    raise ValueError(
        f"{place}: expected features (a list, or names with {_BETWEEN_FEATURES!r} between them) under "
        f"{_name(record, FEATURES, config)!r}, got {value!r}; data.feature_column names where they are"
    )


def _text(record: Mapping[str, Any], what: str, place: str, config: TaggedConfig) -> str:
    name = _name(record, what, config)
    value = record.get(name)
    if isinstance(value, str):
        return value
    found = f"{name!r} is {value!r}" if name in record else f"there is no {name!r}"
    raise ValueError(
        f"{place}: a pair has a {what} text, but {found}; it has {', '.join(map(str, record))} "
        f"(choose one: data.{_SETTINGS[what]})"
    )


def _name(record: Mapping[str, Any], what: str, config: TaggedConfig) -> str:
    names = _wanted(what, config)
    return next((name for name in names if name in record), names[0])


def _wanted(what: str, config: TaggedConfig) -> tuple[str, ...]:
    chosen = getattr(config, _SETTINGS[what])
    return (chosen,) if chosen else _KEYS[what]
