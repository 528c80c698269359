"""Text or words enter, one tag a word leaves, with confidence, spans and places in the text."""

# W words, K labels

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bertkit.finetune.answers import word_logits
from bertkit.finetune.card import SETTINGS
from bertkit.finetune.windows import Frame, WordEncoder, text_rows, word_rows
from bertkit.hf.folder import resolve
from bertkit.hf.matching import check_vocabulary
from bertkit.hf.models import load_with_head
from data_pipelines.labels.schemes import parse, spans_of
from data_pipelines.labels.word_splitting import SplitRule, WordSplitter
from data_pipelines.vocab.tokenizer import load_tokenizer

_CHUNK_SENTENCES, _CHUNK_CHARS = 1024, 1 << 20
"""What is held at once of a stream: enough for batches of equal length, little enough to stay small."""
_USUAL_LENGTH = 512
"""Longest window for folders that do not say how long theirs were."""


class TaggedSpan(NamedTuple):
    kind: str
    start: int
    """First word."""
    end: int
    """The word after the last."""
    text: str
    confidence: float
    """That of its least certain word."""
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
        return TaggedSpan(kind, start, end, text, min(self.confidences[start:end]), offsets)


class Tagger:
    """A fine-tuned folder, ready to tag: `Tagger.load(folder).tag("Some text.")`."""

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> "Tagger":
        """Open a run of `bertkit finetune`, its export, or a Hugging Face folder with a classifier."""
        return cls(folder, device)

    def __init__(self, folder: str | Path, device: str = "cpu"):
        # A softmax is full of numbers too small to be normal, which slow matrix products on a CPU several times.
        torch.set_flush_denormal(True)
        path = resolve(folder)
        model = load_with_head(path, "tagger", "classifier", remedy="fine-tune it first")
        tokenizer = load_tokenizer(path)
        check_vocabulary(tokenizer, model.config.vocab_size, path)
        settings = _settings(path)
        self.labels = model.labels
        self.classifies_texts = model.judges_sequences
        self._model = model.to(device)
        self._device = device
        self._encode, self._frame = WordEncoder(tokenizer), Frame.of(tokenizer)
        self._splitter = WordSplitter(settings.split)
        self._max_length = min(settings.max_length, model.config.max_position_embeddings)

    def tag(self, text_or_words: str | Sequence[str]) -> Tagging:
        """Tag a text, split into words as the training data was, or words that are split already."""
        (tagging,) = self.tag_all([text_or_words])
        return tagging

    def tag_all(
        self,
        sentences: Iterable[str | Sequence[str]],
        chunk: int = _CHUNK_SENTENCES,
        must_wait: Callable[[], bool] = lambda: False,
    ) -> Iterator[Tagging]:
        """Tag many, lazily and in order; `chunk` sentences at most are computed together, and fewer where the next one
        must be waited for."""
        for held in _chunks(sentences, chunk, must_wait):
            yield from self._tag_chunk(held)

    def _tag_chunk(self, sentences: list[str | Sequence[str]]) -> Iterator[Tagging]:
        offsets: list[list[tuple[int, int]] | None] = []
        words: list[list[str]] = []
        for sentence in sentences:
            if isinstance(sentence, str):
                places = self._places(sentence)
                offsets.append(places)
                words.append([sentence[start:end] for start, end in places])
            else:
                offsets.append(None)
                words.append(list(sentence))
        labels, confidences = self._predict(words)
        at = 0
        for sentence, its_words, its_offsets in zip(sentences, words, offsets, strict=True):
            end = at + len(its_words)
            tags = [self.labels[index] for index in labels[at:end]]
            text = sentence if isinstance(sentence, str) else None
            yield Tagging(its_words, tags, confidences[at:end], text, its_offsets)
            at = end

    def _predict(self, words: list[list[str]]) -> tuple[list[int], list[float]]:
        """Label and confidence of each word of all sentences."""
        if self.classifies_texts and any(len(texts) != 1 for texts in words):
            raise ValueError("this model gives a label to a text; give it a text, not words")
        split = text_rows if self.classifies_texts else word_rows
        rows = [
            row
            for index, encoded in enumerate(self._encode(words))
            if len(encoded.ids_P)
            for row in split(encoded, index, self._frame, self._max_length)
        ]
        counts = [len(sentence) for sentence in words]
        logits_WK = word_logits(rows, counts, len(self.labels), self._model.target_logits, self._device)
        confidence_W, label_W = logits_WK.softmax(dim=1).max(dim=1)
        return label_W.tolist(), confidence_W.tolist()

    def _places(self, text: str) -> list[tuple[int, int]]:
        return [(0, len(text))] if self.classifies_texts else self._splitter.places(text)


class _Settings(NamedTuple):
    max_length: int
    split: SplitRule


def _settings(path: Path) -> _Settings:
    """What the folder says of its training data; the usual where it says nothing, as in folders of other makers."""
    file = path / SETTINGS
    if not file.is_file():
        return _Settings(_USUAL_LENGTH, SplitRule())
    try:
        values = json.loads(file.read_bytes())
        split = SplitRule() if values["split"] is None else SplitRule.from_json(values["split"])
        return _Settings(int(values["max_length"]), split)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not what bertkit wrote there: {error!r}") from None


def _chunks(
    sentences: Iterable[str | Sequence[str]], most: int, must_wait: Callable[[], bool]
) -> Iterator[list[str | Sequence[str]]]:
    """As many sentences as may be held at once, of long ones fewer."""
    held: list[str | Sequence[str]] = []
    size = 0
    for sentence in sentences:
        held.append(sentence)
        size += len(sentence) if isinstance(sentence, str) else sum(map(len, sentence))
        if len(held) >= most or size >= _CHUNK_CHARS or must_wait():
            yield held
            held, size = [], 0
    if held:
        yield held
