"""Lines of a file or stream to inputs of a tagger, with everything around them. Labels in them are ignored."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import FORMATS, Fill, LabelFormat, format_named, have_columns_alike
from data_pipelines.labels.formats.conll import has_columns
from data_pipelines.labels.formats.json_lines import json_records
from data_pipelines.labels.records import ToTag, follower, given_text, given_words, is_task, unwrapped
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.word_splitting import Places
from data_pipelines.text.lines import Line, read_lines, suffix_of

Given = str | list[str]
ReadRecord = Callable[[Mapping[str, Any], TaggedConfig, str], ToTag]
"""A record, settings and place to what is given to the tagger."""
_JSON = (".jsonl", ".json", ".ndjson")
_LOOKED_AT = 100


def _nothing(tags: list[str]) -> Iterator[str]:
    return iter(())


class Part(NamedTuple):
    """A stretch of a file: what is given to the tagger, and what else is to be kept."""

    given: Given | None
    """A text, or words; None where there is nothing to tag."""
    follows: bool = False
    """Whether it continues the document of the part before it."""
    text: str | None = None
    """The running text of words, where the file has it."""
    offsets: Places | None = None
    """Start and end of each word in the text, where the file says so."""
    record: Mapping[str, Any] | None = None
    """The record that holds a text or words."""
    form: LabelFormat | None = None
    """Whose lines `fill` gives."""
    fill: Callable[[list[str]], Iterator[str]] = _nothing
    """The lines of the file as they are, with these tags in them."""
    place: str = ""
    """File and line."""
    native: Any = None
    """What a file that is not text has in its place."""


class Reading(NamedTuple):
    """How a model's labeled files were read, and so its files to tag are."""

    config: TaggedConfig
    labels: Collection[str]
    suffixes: Collection[str] = ()
    """Of the files whose columns the config names; none where that is unknown."""

    def of(self, kind: str) -> "Reading":
        """For files of a format. Columns that were named for another one say nothing of these."""
        if kind == "text":
            return self
        config, form = self.config, format_named(kind)
        known = [FORMATS[suffix] for suffix in self.suffixes if suffix in FORMATS]
        if known and not any(have_columns_alike(form, one) for one in known):
            config = TaggedConfig(encoding=config.encoding, errors=config.errors)
        if form.usual_column and not config.tag_column and form not in known:
            config = replace(config, tag_column=form.usual_column(self.labels))
        return self._replace(config=config)

    def of_source(self, source: str) -> "Reading":
        """For a labeled file or dataset."""
        suffix = suffix_of(source)
        return self.of(suffix[1:]) if suffix in FORMATS else self


def kind_of(file: str, reading: Reading) -> str:
    """The format by the file's name, and of JSON by the first record; if the name has none, conll for words in columns
    with labels of the model, else text."""
    suffix = suffix_of(file)
    if suffix in _JSON:
        lines = read_lines(Path(file), "replace", cut_long=False, encoding=reading.config.encoding)
        record, _ = next(json_records(lines, file, replace(reading.config, errors="replace")), ({}, 0))
        return "label-studio" if is_task(record) else suffix[1:]
    if suffix in FORMATS and suffix != ".csv":  # which is seldom words in columns
        return suffix[1:]
    config, labels, _ = reading.of("conll")
    first = islice(read_lines(Path(file), "replace", cut_long=True, encoding=config.encoding), _LOOKED_AT)
    return "conll" if has_columns(first, config, labels) else suffix[1:] if suffix in FORMATS else "text"


def word_inputs(lines: Iterable[Line], source: str, kind: str, reading: Reading) -> Iterator[Part]:
    """The words of labeled sentences, or what records hold. Of text and CSV each line is a text."""
    if kind in ("text", "csv"):
        return _of_lines(lines, source)
    found = format_named(kind)
    if found.sentences:
        return _of_sentences(found, lines, source, reading)
    return of_records(found, lines, source, reading.config, given_words)


def text_inputs(lines: Iterable[Line], source: str, kind: str, reading: Reading) -> Iterator[Part]:
    """A text a line, or those that records hold. A blank line is no text."""
    if kind == "text":
        return texts_of_lines(lines, source)
    return inputs_of_records(lines, source, kind, reading.config, given_text, "gives a label to a text")


def texts_of_lines(lines: Iterable[Line], source: str, check: Callable[[str], object] = bool) -> Iterator[Part]:
    """A text a line; a blank line is none. What `check` refuses is refused with its place."""
    for line in lines:
        place, filled = f"{source}:{line.number}", bool(line.text.strip())
        try:
            if filled:
                check(line.text)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        yield Part(line.text if filled else None, place=place)


def inputs_of_records(
    lines: Iterable[Line], source: str, kind: str, config: TaggedConfig, read: ReadRecord, about: str
) -> Iterator[Part]:
    """What `read` takes from the records of a file; one without records is refused by what the model is about."""
    found = format_named(kind)
    if found.records is None:
        raise ValueError(f"{source}: this model {about}, but {kind} holds words")
    return of_records(found, lines, source, config, read)


def _of_lines(lines: Iterable[Line], source: str) -> Iterator[Part]:
    """A sentence a line; a blank line ends a document."""
    follows = False
    for line in lines:
        filled = bool(line.text.strip())
        yield Part(line.text, follows=follows and filled, place=f"{source}:{line.number}")
        follows = filled


def _of_sentences(found: LabelFormat, lines: Iterable[Line], source: str, reading: Reading) -> Iterator[Part]:
    """What the reader of the format makes of the lines, each sentence with all lines since the one before it."""
    assert found.sentences is not None
    fill = found.filler(reading.config, reading.labels) if found.filler else None
    seen: list[Line] = []
    for sentence in found.sentences(_noted(lines, seen), source, reading.config, False):
        here = partial(_filled, fill, list(seen), sentence) if fill else _nothing
        seen.clear()
        part = Part(sentence.words, sentence.follows, sentence.text, form=found, fill=here, place=sentence.place())
        yield part._replace(native=sentence.native)
    yield from _untagged(seen, found)


def of_records(
    found: LabelFormat, lines: Iterable[Line], source: str, config: TaggedConfig, read: ReadRecord
) -> Iterator[Part]:
    """What `read` takes from each record, as fine-tuning does."""
    assert found.records is not None
    seen: list[Line] = []
    follows = follower()
    for record, number in found.records(_noted(lines, seen), source, config):
        yield from _untagged([line for line in seen if line.number < number and not line.text.strip()], found)
        seen.clear()
        place = f"{source}:{number}"
        given, text, offsets = read(unwrapped(record), config, place)
        follow = follows(record, isinstance(given, list))
        yield Part(given, follow, text, offsets, record, found, place=place)
    yield from _untagged([line for line in seen if not line.text.strip()], found)


def _noted(lines: Iterable[Line], seen: list[Line]) -> Iterator[Line]:
    for line in lines:
        seen.append(line)
        yield line


def _filled(fill: Fill, lines: list[Line], sentence: Sentence, tags: list[str]) -> Iterator[str]:
    return fill(lines, sentence._replace(tags=tags))


def _untagged(lines: list[Line], found: LabelFormat) -> Iterator[Part]:
    """Lines without a word: blank ones, comments."""
    if texts := [line.text for line in lines]:
        yield Part(None, form=found, fill=lambda tags: iter(texts))
