"""Labeled sources to sentences and the labels that can be learned from them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from bertkit.config.finetune import LabeledSection
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.digest import text_hash

_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""What Hugging Face datasets call the parts."""
TRAINING = "training"
"""The setting with what an export keeps of its training labels, for baselines on other data."""
CONTEXT = "context"
"""The setting of models whose sentences see their neighbours; its value is "document"."""
Parts = dict[str, list[Sentence]]
"""The sentences of train, dev and test."""


class Labeled(NamedTuple):
    """All that the labeled data say."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]
    labels: tuple[str, ...]
    """Every label that can be learned: those of the training data."""
    notes: tuple[str, ...]
    """What was recognised or repaired."""
    settings: dict[str, Any]
    """What scoring and prediction must know of the data: plain values, stored next to the export."""

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for sentences in (self.train, self.dev, self.test):
            for sentence in sentences:
                follows = [True] * (sentence.follows and CONTEXT in self.settings)
                digest.update(json.dumps([sentence.words, sentence.tags, *follows]).encode())
            digest.update(b"\n")
        return digest.hexdigest()


def read_parts(read: Callable[..., Iterable[Sentence]], config: LabeledSection) -> Parts:
    """Training, dev and test sentences; `read` gives those of one source."""
    parts = {
        name: [
            sentence
            for source in getattr(config, name)
            for sentence in read(source, config, split=split)
            if sentence.words
        ]
        for name, split in _SPLITS.items()
    }
    for name, sentences in parts.items():
        sources = getattr(config, name)
        if sources and not sentences:
            raise ValueError(f"{', '.join(sources)} holds no labeled sentence")
    return parts


def make_labeled(parts: Parts, labels: Sequence[str], notes: Sequence[str], train_share: float) -> Labeled:
    """These parts, of the training sentences the share that is to be used."""
    train = _share(parts["train"], train_share)
    if len(train) < len(parts["train"]):
        used = f"{len(train):,} of {len(parts['train']):,} training sentences are used (data.train_share)"
        notes = [*notes, used]
    return Labeled(train, parts["dev"], parts["test"], tuple(labels), tuple(notes), {})


def training_of(labeled: Labeled, summary: Callable[[Sequence[Sentence]], dict[str, Any]]) -> dict[str, Any]:
    """What baselines must know of the training labels: as the settings have it, or the summary of the training
    sentences, where a plugin's own `read` set nothing."""
    return labeled.settings.get(TRAINING) or summary(labeled.train)


def unlearnable(parts: Parts, labels: Sequence[str]) -> list[str]:
    """Notes on labels that no training sentence has. They stay in dev and test: every one counts as a mistake."""
    known, notes = set(labels), []
    for name in ("dev", "test"):
        places: dict[str, tuple[int, str]] = {}
        for sentence in parts[name]:
            for index, tag in enumerate(sentence.tags or ()):
                if tag not in known:
                    count, first = places.get(tag, (0, sentence.place(index)))
                    places[tag] = (count + 1, first)
        for tag, (count, first) in places.items():
            notes.append(
                f"{first}: the label {tag!r} ({count:,} times) is not in the training data, so it is always a mistake"
            )
    return notes


def _share(sentences: list[Sentence], share: float) -> list[Sentence]:
    """The sentences that come first in an order that depends on their text alone; at least one."""
    count = max(1, round(share * len(sentences)))
    order = sorted(
        range(len(sentences)), key=lambda index: (text_hash("\t".join(sentences[index].words), "share"), index)
    )
    kept = sorted(order[:count])
    # What came after a sentence that is left out does not follow the one before that.
    return [
        sentences[index]._replace(follows=sentences[index].follows and before == index - 1)
        for before, index in pairwise([-1, *kept])
    ]
