"""Tags of words to spans of characters: the position of each word in a text, and what the spans of a sentence cover."""

from typing import Any

from data_pipelines.labels.schemes import parse, spans_of
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.word_splitting import Places, written_out

CharacterSpan = tuple[int, int, str, float | None]
"""Start, end, kind, and its probability where a model found it."""
_PLACES = (("start", "end"), ("start_offset", "end_offset"))
"""What the ends of a span are called, also by doccano."""


def placed(sentence: Sentence) -> Sentence:
    """The sentence with a text and the places of its words; words that never had a text are written out as one."""
    if sentence.text is not None and sentence.offsets is not None:
        return sentence
    for text in (sentence.text, written_out(sentence.words), " ".join(sentence.words)):
        offsets = None if text is None else _places(sentence.words, text)
        if offsets is not None:
            return sentence._replace(text=text, offsets=offsets)
    raise AssertionError("words occur in their own text")


def character_spans(sentence: Sentence) -> list[CharacterSpan]:
    """The spans of a sentence that has places. Plain tags, such as parts of speech, mark none and are refused."""
    assert sentence.offsets is not None
    tags = sentence.tags or []
    plain = next((tag for tag in tags if parse(tag) is None), None)
    if plain is not None:
        raise ValueError(f"{plain!r} is a tag for words, not spans; use conll, conllu or jsonl instead")
    places, scores = sentence.offsets, sentence.scores or {}
    return [
        (places[start][0], places[end - 1][1], kind, scores.get((start, end))) for kind, start, end in spans_of(tags)
    ]


def spans_like(old: Any, sentence: Sentence) -> list[dict[str, Any]]:
    """The spans of a sentence as objects, their keys named as in the old ones. One at the place of an old span keeps
    its other fields, such as an id."""
    begin, end_at = next((names for names in _PLACES if spans_by_place(old, *names)), _PLACES[0])
    before = spans_by_place(old, begin, end_at)
    label = "type" if any("type" in span and "label" not in span for span in before.values()) else "label"
    return [
        {**before.get((start, end), {}), begin: start, end_at: end, label: kind}
        for start, end, kind, _ in character_spans(sentence)
    ]


def spans_by_place(spans: Any, begin: str = "start", end_at: str = "end") -> dict[tuple[int, int], dict[str, Any]]:
    """Those of a list that are objects with a place."""
    objects = [span for span in spans if isinstance(span, dict)] if isinstance(spans, list) else []
    places = [(span.get(begin), span.get(end_at)) for span in objects]
    return {
        (start, end): span
        for span, (start, end) in zip(objects, places, strict=True)
        if isinstance(start, int) and isinstance(end, int)
    }


def _places(words: list[str], text: str) -> Places | None:
    """The positions of the words, one after the other; None if one is not found."""
    places, at = [], 0
    for word in words:
        start = text.find(word, at)
        if start < 0:
            return None
        at = start + len(word)
        places.append((start, at))
    return places
