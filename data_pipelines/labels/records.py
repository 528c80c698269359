"""Records of JSON Lines, CSV or a dataset to sentences."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.placing import character_spans, spans_like
from data_pipelines.labels.schemes import Span, iob2_tags, parse
from data_pipelines.labels.sentence import Record, Sentence, check_word, checked_tag
from data_pipelines.labels.word_splitting import Places, SplitRule, WordSplitter

_WORD_KEYS = ("tokens", "words", "sentence", "form")
_TAG_KEYS = ("tags", "ner_tags", "pos_tags", "upos", "labels", "ner", "pos", "chunk_tags")
_SPAN_KEYS = ("spans", "entities", "label", "labels")
_LABEL_KEYS = ("label", "labels", "class", "category", "sentiment")
_TEXT_KEYS = ("text", "sentence", "content")
_FIRST_KEYS = ("text1", "sentence1", "premise", "text_a", "question1", "question", *_TEXT_KEYS)
_SECOND_KEYS = ("text2", "sentence2", "hypothesis", "text_b", "question2", "answer")
_SEVERAL_KEYS = ("labels", "label", "tags", "classes", "categories")
_DOCUMENT_KEYS = ("doc_id", "document_id", "document", "doc")
_NUMBER_KEYS = ("score", "label", "number", "value", "rating", "similarity")
# How text with spans is split into words; its tagger remembers the rule.
SPAN_RULE = SplitRule()


def sentences_of_records(
    records: Iterable[Record], source: str, config: TaggedConfig, tagged: bool
) -> Iterator[Sentence]:
    """Words with tags: {"tokens": [...], "tags": [...]} or {"text": ..., "spans": [{"start":, "end":, "label":}]}."""
    splitter = WordSplitter(SPAN_RULE)
    follows = follower()
    for record, line in records:
        sentence = _sentence_of(unwrapped(record), line, source, config, tagged, splitter)
        yield sentence._replace(follows=follows(record, sentence.text is None))


def is_task(record: Mapping[str, Any]) -> bool:
    """Whether it is a task of Label Studio."""
    return isinstance(record.get("data"), Mapping)


def unwrapped(record: Mapping[str, Any]) -> dict[str, Any]:
    """A task of Label Studio as any other record, with what people marked as spans or label, or else what a model
    predicted; another record as it is. A task that nobody marked, or that was skipped, has neither."""
    if not is_task(record):
        return dict(record)
    answers = [
        answer
        for key in ("annotations", "completions", "predictions")
        for answer in record.get(key) or ()
        if isinstance(answer, Mapping) and not answer.get("was_cancelled") and isinstance(answer.get("result"), list)
    ]
    fields = {**({"id": record["id"]} if "id" in record else {}), **record["data"]}
    if not answers:
        return fields
    values = [mark["value"] for mark in answers[0]["result"] if isinstance(mark, Mapping) and "value" in mark]
    choices = [choice for value in values for choice in value.get("choices", ())]
    if choices:
        return {**fields, "label": choices}
    spans = [{**value, "label": label} for value in values for label in value.get("labels", ())]
    return {**fields, "spans": spans}


def follower() -> Callable[[Mapping[str, Any], bool], bool]:
    """Tells of each record of a file, and whether it holds words, if it continues the document of the record before:
    it says so itself (doc_id and the like); else words do, and a text is its own document."""
    before: Any = None
    begun = False

    def follows(record: Mapping[str, Any], words: bool) -> bool:
        nonlocal before, begun
        fields = unwrapped(record)
        here = fields.get(_key(fields, "", _DOCUMENT_KEYS))
        same = begun and here == before and (words or here is not None)
        before, begun = here, True
        return same

    return follows


def resplit(sentence: Sentence, offsets: Places) -> Sentence:
    """A sentence whose words were cut out of its text, cut again at these places; its spans stay where they are."""
    assert sentence.text is not None
    spans = [(start, end, kind) for start, end, kind, _ in character_spans(sentence)]
    offsets = _apart(offsets, spans)
    words = [sentence.text[start:end] for start, end in offsets]
    tags, lines = _span_tags(offsets, spans, sentence.place()), sentence.lines[:1] * len(words)
    return sentence._replace(words=words, tags=tags, lines=lines, offsets=offsets)


class LabelKind(NamedTuple):
    """What is known of a text: the keys that usually hold it, and the function that reads it as tags."""

    keys: tuple[str, ...]
    read: Callable[[Any, TaggedConfig, str], list[str]]


def _one_label(value: Any, config: TaggedConfig, place: str) -> list[str]:
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, (list, dict)) or value is None or value == "":
        raise ValueError(f"{place}: a text has one label, got {value!r}")
    return [str(value)]


def _several_labels(value: Any, config: TaggedConfig, place: str) -> list[str]:
    """A list, or text with separators; no label at all is fine."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(config.label_separator or None) if part.strip()]
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(label, (str, int)) and label != "" for label in value
    ):
        raise ValueError(f"{place}: labels are a list of names, or names separated by label_separator, got {value!r}")
    return list(dict.fromkeys(map(str, value)))


def _number(value: Any, config: TaggedConfig, place: str) -> list[str]:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{place}: expected a number (tag_column), got {value!r}")
    return [repr(number)]


ONE_LABEL = LabelKind(_LABEL_KEYS, _one_label)
SEVERAL_LABELS = LabelKind(_SEVERAL_KEYS, _several_labels)
NUMBER = LabelKind(_NUMBER_KEYS, _number)


def texts_of_records(
    records: Iterable[Record],
    source: str,
    config: TaggedConfig,
    tagged: bool,
    kind: LabelKind = ONE_LABEL,
    paired: bool = False,
) -> Iterator[Sentence]:
    """Texts with what is known of them: {"text": ..., "label": ...}; pairs: {"text1": ..., "text2": ..., "label": ...}.
    The words of a sentence are then whole texts, one or two."""
    for record, line in records:
        place, record = f"{source}:{line}", unwrapped(record)
        texts = texts_of_record(record, config, place, paired)
        tags = None
        if tagged or _key(record, config.tag_column, kind.keys) in record:
            tags = kind.read(_value(record, config.tag_column, kind.keys, "tag_column", place), config, place)
        yield Sentence(texts, tags, source, [line] * max(len(texts), len(tags or ())))


def texts_of_record(record: Mapping[str, Any], config: TaggedConfig, place: str, paired: bool) -> list[str]:
    texts = [_value(record, config.word_column, _FIRST_KEYS if paired else _TEXT_KEYS, "word_column", place)]
    if paired:
        texts.append(_value(record, config.pair_column, _SECOND_KEYS, "pair_column", place))
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{place}: the text must be a string, got {type(text).__name__}")
    return texts


def other_fields(sentence: Sentence) -> dict[str, Any]:
    """What the record of a sentence holds beside words, text and labels."""
    record = unwrapped(sentence.record or {})
    known = {*_WORD_KEYS, *_TAG_KEYS, *_SPAN_KEYS, *_LABEL_KEYS, *_TEXT_KEYS}
    return {key: value for key, value in record.items() if key not in known}


def label_key(record: Mapping[str, Any], config: TaggedConfig, kind: LabelKind = ONE_LABEL) -> str:
    """The key under which a text has its label, or would have it."""
    return _key(record, config.tag_column if config.tag_column in record else "", kind.keys)


def relabeled(record: Mapping[str, Any], sentence: Sentence, config: TaggedConfig) -> dict[str, Any]:
    """The record with the tags of the sentence where labels are read from: as tags, spans or one label, as it has
    them."""
    wanted = config.tag_column if config.tag_column in record else ""
    keys = {label_key(record, config), *(_key(record, wanted, usual) for usual in (_TAG_KEYS, _SPAN_KEYS))}
    tags = sentence.tags or []

    def again(key: str, old: Any) -> Any:
        if isinstance(old, (str, int, float)):
            return tags[0] if len(tags) == 1 else old
        if not isinstance(old, list):
            return old
        if sentence.offsets is None or (old and isinstance(old[0], str)) or not all(map(parse, tags)):
            return tags
        # An empty list does not say how it holds spans; under this key alone they are objects by custom.
        if isinstance(old[0], list) if old else key != "spans":
            return [[start, end, kind] for start, end, kind, _ in character_spans(sentence)]
        return spans_like(old, sentence)

    return {key: again(key, value) if key in keys else value for key, value in record.items()}


class ToTag(NamedTuple):
    """What a record gives to a tagger."""

    words: str | list[str]
    """The words, or a text that is still to be split into words."""
    text: str | None = None
    """The running text of words, where the record has it."""
    offsets: Places | None = None
    """Start and end of each word in the text, where the record says so."""


def given_words(record: Mapping[str, Any], config: TaggedConfig, place: str) -> ToTag:
    """The words of a record, from where `sentences_of_records` reads them; else its text."""
    wanted = config.word_column if config.word_column in record else ""
    words, text = record.get(_key(record, wanted, _WORD_KEYS)), record.get("text")
    if isinstance(words, (list, tuple)):
        if isinstance(text, str) and _are_places(words, record):
            offsets = [(word["start"], word["end"]) for word in words]
            return ToTag([text[start:end] for start, end in offsets], text, offsets) if words else ToTag(text)
        if all(isinstance(word, str) for word in words):
            return ToTag(list(words), text if isinstance(text, str) else None)
    for one in (words, text) if wanted else (text, words):
        if isinstance(one, str):
            return ToTag(one)
    raise _nothing_to_tag(record, place)


def given_text(record: Mapping[str, Any], config: TaggedConfig, place: str) -> ToTag:
    """The text of a record, from where `texts_of_records` reads it."""
    wanted = config.word_column if config.word_column in record else ""
    text = record.get(_key(record, wanted, _TEXT_KEYS))
    if not isinstance(text, str):
        raise _nothing_to_tag(record, place)
    return ToTag(text)


def _nothing_to_tag(record: Mapping[str, Any], place: str) -> ValueError:
    return ValueError(f"{place}: expected tokens (a list of words) or a text; the keys are {', '.join(record)}")


def _sentence_of(
    record: Mapping[str, Any], line: int, source: str, config: TaggedConfig, tagged: bool, splitter: WordSplitter
) -> Sentence:
    place = f"{source}:{line}"
    words = record.get(_key(record, config.word_column, _WORD_KEYS))
    text = record.get("text")
    if isinstance(words, (list, tuple)) and not _are_places(words, record):
        for word in words:
            if not isinstance(word, str):
                raise ValueError(f"{place}: a word must be a string, got {word!r}")
            if tagged:
                check_word(word, place)
        tags = None
        if tagged or _key(record, config.tag_column, _TAG_KEYS) in record:
            tags = _value(record, config.tag_column, _TAG_KEYS, "tag_column", place)
            if not isinstance(tags, (list, tuple)) or len(tags) != len(words):
                given = f"{len(tags)} tags" if isinstance(tags, (list, tuple)) else repr(tags)
                raise ValueError(f"{place}: {len(words)} words need as many tags, got {given}")
            tags = [checked_tag(str(tag), place) for tag in tags]
        return Sentence(list(words), tags, source, [line] * len(words))
    if not isinstance(text, str):
        raise _nothing_to_tag(record, place)
    places = words if isinstance(words, (list, tuple)) else []
    offsets = [(word["start"], word["end"]) for word in places] or splitter.places(text)
    tags = None
    if tagged or _key(record, config.tag_column, _SPAN_KEYS) in record:
        given = _value(record, config.tag_column, _SPAN_KEYS, "tag_column", place)
        spans = _character_spans(text, given, place)
        offsets = offsets if places else _apart(offsets, spans)
        tags = _span_tags(offsets, spans, place)
    words = [text[start:end] for start, end in offsets]
    return Sentence(words, tags, source, [line] * len(words), text, None if places else offsets)


def _are_places(words: Sequence[Any], record: Mapping[str, Any]) -> bool:
    """Whether words are given by their places in the text, as Prodigy writes them."""
    text: Any = record.get("text")

    def is_place(word: Any) -> bool:
        ends = (word.get("start"), word.get("end")) if isinstance(word, dict) else ()
        return len(ends) == 2 and all(isinstance(end, int) and 0 <= end <= len(text) for end in ends)

    return isinstance(text, str) and (all(map(is_place, words)) if words else "spans" in record)


def _character_spans(text: str, spans: Any, place: str) -> list[tuple[int, int, str]]:
    if not isinstance(spans, (list, tuple)):
        raise ValueError(f"{place}: spans must be a list, got {str(spans)[:80]}")
    return sorted(_character_span(span, len(text), place) for span in spans)


def _apart(offsets: Places, spans: Sequence[tuple[int, int, str]]) -> Places:
    """A word that two spans share becomes two words."""
    found: Places = []
    for start, end in offsets:
        borders = [after[0] for before, after in pairwise(spans) if start < before[1] <= after[0] < end]
        found += pairwise([start, *borders, end])
    return found


def _span_tags(offsets: Places, spans: Sequence[tuple[int, int, str]], place: str) -> list[str]:
    """IOB2 tags of the words that the spans touch; a word half inside a span belongs to it."""
    found: list[Span] = []
    for start, end, label in spans:
        touched = [index for index, (left, right) in enumerate(offsets) if left < end and right > start]
        if not touched:
            raise ValueError(f"{place}: the span {start}-{end} ({label}) holds no word")
        if found and found[-1].end > touched[0]:
            raise ValueError(f"{place}: the span {start}-{end} ({label}) overlaps the one before it")
        found.append(Span(label, touched[0], touched[-1] + 1))
    return iob2_tags(found, len(offsets))


def _character_span(span: Any, length: int, place: str) -> tuple[int, int, str]:
    if isinstance(span, Mapping):  # doccano writes start_offset
        start, end = (span.get(key, span.get(f"{key}_offset")) for key in ("start", "end"))
        label = span.get("label", span.get("type"))
    elif isinstance(span, (list, tuple)) and len(span) == 3:
        start, end, label = span
    else:
        start = end = label = None
    whole = isinstance(start, int) and isinstance(end, int) and isinstance(label, str)
    if not whole or not 0 <= start < end <= length:
        raise ValueError(
            f"{place}: a span is {{start, end, label}} or [start, end, label] within the {length} characters of "
            f"the text, got {str(span)[:80]}"
        )
    return start, end, label


def _key(record: Mapping[str, Any], wanted: str, usual: tuple[str, ...]) -> str:
    return wanted or next((key for key in usual if key in record), usual[0])


def _value(record: Mapping[str, Any], wanted: str, usual: tuple[str, ...], setting: str, place: str) -> Any:
    key = _key(record, wanted, usual)
    if key not in record:
        raise ValueError(f"{place}: no key {key!r}; the keys are {', '.join(map(str, record))} (choose one: {setting})")
    return record[key]
