"""Texts with spans of characters, an object a line: plain, and as doccano exports and imports them."""

from collections.abc import Iterable, Iterator

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.formats.json_lines import json_object, json_records
from data_pipelines.labels.placing import character_spans, placed, spans_like
from data_pipelines.labels.records import other_fields
from data_pipelines.labels.sentence import Sentence


def write_spans(sentences: Iterable[Sentence], config: TaggedConfig) -> Iterator[str]:
    """{"text", "spans": [{"start", "end", "label"}], "tokens": [{"start", "end"}]}, so that words are kept."""
    for sentence in map(placed, sentences):
        spans = spans_like((sentence.record or {}).get("spans"), sentence)
        for span, (*_, score) in zip(spans, character_spans(sentence), strict=True):
            span |= {} if score is None else {"confidence": round(score, 4)}
        tokens = [{"start": start, "end": end} for start, end in sentence.offsets or ()]
        yield json_object({**other_fields(sentence), "text": sentence.text, "spans": spans, "tokens": tokens})


def write_doccano(sentences: Iterable[Sentence], config: TaggedConfig) -> Iterator[str]:
    """{"text", "label": [[start, end, label], ...]}"""
    for sentence in map(placed, sentences):
        label = [[start, end, kind] for start, end, kind, _ in character_spans(sentence)]
        yield json_object({**other_fields(sentence), "text": sentence.text, "label": label})


def write_doccano_texts(texts: Iterable[Sentence], config: TaggedConfig) -> Iterator[str]:
    """{"text", "label": [label]}"""
    for text in texts:
        yield json_object({**other_fields(text), "text": text.words[0], "label": text.tags})


SPANS = LabelFormat(records=json_records, write=write_spans)
DOCCANO = LabelFormat(records=json_records, write=write_doccano, write_texts=write_doccano_texts)
