"""Words with their tags: what a tagger gives back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bertkit.finetune.answers import Confidence
from data_pipelines.labels.schemes import parse, spans_of
from data_pipelines.labels.sentence import Sentence


class TaggedSpan(NamedTuple):
    kind: str
    start: int
    """First word."""
    end: int
    """The word after the last."""
    text: str
    confidence: float
    """How sure the whole span is; of a model whose tags know no rules, the probability of its least certain word."""
    offsets: tuple[int, int] | None
    """Place in the text, where there was a text."""


@dataclass(frozen=True)
class Tagging:
    """Words with their tags. Of a text classifier: the whole text as one word, its label as the tag."""

    words: list[str]
    tags: list[str]
    confidences: list[float]
    """Probability of each tag."""
    text: str | None = None
    offsets: list[tuple[int, int]] | None = None
    """Place of each word in the text."""
    span_confidences: dict[tuple[int, int], float] | None = None
    """How sure each span as a whole is, by its first word and the one after its last."""

    @classmethod
    def of(cls, sentence: Sentence, tags: list[str], sure: Confidence) -> "Tagging":
        return cls(sentence.words, tags, sure.words, sentence.text, sentence.offsets, sure.spans)

    @property
    def uncertainty(self) -> float | None:
        """The mean surprise at its tags, in nats a word; None without words."""
        return mean_surprise(self.confidences)

    @property
    def spans(self) -> list[TaggedSpan]:
        """What the tags mark, in the reading of conlleval; nothing where tags are plain."""
        if any(parse(tag) is None for tag in self.tags):
            return []
        return [self._span(kind, start, end) for kind, start, end in spans_of(self.tags)]

    def to_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {"words": self.words, "tags": self.tags}
        values["confidences"] = [round(confidence, 4) for confidence in self.confidences]
        if self.text is not None:
            values = {"text": self.text, **values, "offsets": self.offsets}
        values["spans"] = [
            {
                "label": span.kind,
                "words": [span.start, span.end],
                "text": span.text,
                "confidence": round(span.confidence, 4),
                **({} if span.offsets is None else {"start": span.offsets[0], "end": span.offsets[1]}),
            }
            for span in self.spans
        ]
        return values

    def _span(self, kind: str, start: int, end: int) -> TaggedSpan:
        text, offsets = " ".join(self.words[start:end]), None
        if self.text is not None and self.offsets is not None:
            offsets = self.offsets[start][0], self.offsets[end - 1][1]
            text = self.text[slice(*offsets)]
        confidence = (self.span_confidences or {}).get((start, end), min(self.confidences[start:end]))
        return TaggedSpan(kind, start, end, text, confidence, offsets)


def mean_surprise(probabilities: Sequence[float]) -> float | None:
    """In nats: 0 for who is certain."""
    return -sum(math.log(max(share, 1e-12)) for share in probabilities) / len(probabilities) if probabilities else None
