"""What a model has written: a text with its score, what it is made of, and what else it might have been."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bertkit.finetune.writing.script import Script
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.rewrites import target_key
from data_pipelines.labels.sentence import Sentence


class Draft(NamedTuple):
    """Tokens that were written, without the end."""

    ids: list[int]
    score: float
    """Logarithm of their probability, the end included; higher is better."""
    sure: list[float]
    """The probability of each token and of the end, when it was chosen."""


class Pass(NamedTuple):
    """What one pass over the slots decided."""

    ids: list[int]
    sure: list[float]
    kept: list[bool]
    """Whether a slot stays as it is; the others are masked again."""

    def at(self, slots: Sequence[int]) -> "Pass":
        """What it decided about these."""
        return Pass([self.ids[at] for at in slots], [self.sure[at] for at in slots], [self.kept[at] for at in slots])


@dataclass(frozen=True)
class Written:
    """`str(written)` is the text."""

    source: str
    text: str
    score: float
    features: list[str] = field(default_factory=list)
    best: list[tuple[str, float]] = field(default_factory=list)
    """The likeliest texts with their scores, the best first, where several were asked for."""

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {"source": self.source}
        if self.features:
            values["features"] = self.features
        values |= {"target": self.text, "score": round(self.score, 4)}
        if self.best:
            values["best"] = [{"target": text, "score": round(score, 4)} for text, score in self.best]
        return values

    def filled(self, record: Mapping[str, Any], config: TaggedConfig) -> dict[str, Any]:
        """The record with the text where targets are read from."""
        return {**record, target_key(record, config): self.text}


def text_of(script: Script, ids: Sequence[int], source: str) -> str:
    """The text that tokens spell. A character that the vocabulary lacks can only be copied: an unknown token means
    the source's unknown character of the same number."""
    backend, unknown = script.tokenizer.backend, script.tokenizer.special.unk_id
    if unknown is None or unknown not in ids:
        return backend.decode(list(ids))
    encoding = backend.encode(source, add_special_tokens=False)
    places = zip(encoding.ids, encoding.offsets, strict=True)
    spellings = [source[start:end] for index, (start, end) in places if index == unknown]
    parts: list[str] = []
    held: list[int] = []
    for index in ids:
        if index == unknown:
            parts += [backend.decode(held), spellings.pop(0) if spellings else ""]
            held = []
        else:
            held.append(index)
    return "".join([*parts, backend.decode(held)])


def written(sentence: Sentence, prediction: str, sure: Any) -> Written:
    """What a user gets."""
    best = sure if len(sure) > 1 else []
    return Written(sentence.words[0], prediction, sure[0][1], sentence.words[1:], best)
