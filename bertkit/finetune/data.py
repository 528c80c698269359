"""Sources of labeled sentences enter; checked sentences in one tag scheme and the list of labels leave."""

import hashlib
import json
from collections.abc import Iterable
from typing import NamedTuple

from bertkit.config.fields import part
from bertkit.config.finetune import LabeledSection
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.schemes import OUTSIDE, Scheme, parse, recognise, stray_insides, to_iob2
from data_pipelines.labels.tagged import SPAN_RULE, Sentence, read_labeled_texts, read_tagged
from data_pipelines.labels.word_splitting import SplitRule, learn_rule
from data_pipelines.text.digest import text_hash

_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""What Hugging Face datasets call the parts."""


class Labeled(NamedTuple):
    """All that the labeled data say."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]
    labels: tuple[str, ...]
    """Every label that can be learnt: those of the training data."""
    scheme: Scheme
    """How the files write their tags; span tags are IOB2 from here on."""
    rule: SplitRule | None
    """How the text of the data is split into words; None where a text has one label."""
    notes: tuple[str, ...]
    """What was recognised or repaired."""
    fingerprint: str

    @property
    def has_spans(self) -> bool:
        return self.scheme != "plain"


def read_labeled(task: str, config: LabeledSection) -> Labeled:
    """Read training, dev and test data, and bring their tags into one scheme."""
    read = read_tagged if task == "tagging" else read_labeled_texts
    tagged = part(config, TaggedConfig)
    parts = {
        name: [
            sentence
            for source in getattr(config, name)
            for sentence in read(source, tagged, split=split)
            if sentence.words
        ]
        for name, split in _SPLITS.items()
    }
    if not parts["train"]:
        raise ValueError(f"data.train: {', '.join(config.train)} holds no labeled sentence")
    for name in ("dev", "test"):
        if getattr(config, name) and not parts[name]:
            raise ValueError(f"data.{name}: {', '.join(getattr(config, name))} holds no labeled sentence")
    everything = [sentence for sentences in parts.values() for sentence in sentences]
    scheme, notes = _scheme(task, config, everything)
    if scheme != "plain":
        parts = {name: [_in_iob2(sentence) for sentence in sentences] for name, sentences in parts.items()}
    labels = _labels(parts["train"], scheme)
    notes += _unlearnable(parts, set(labels))
    train = _share(parts["train"], config.train_share)
    if len(train) < len(parts["train"]):
        notes.append(f"{len(train):,} of {len(parts['train']):,} training sentences are used (data.train_share)")
    return Labeled(
        train,
        parts["dev"],
        parts["test"],
        labels,
        scheme,
        _rule(train) if task == "tagging" else None,
        tuple(notes),
        _fingerprint([train, parts["dev"], parts["test"]]),
    )


def known_words(sentences: Iterable[Sentence]) -> set[str]:
    return {word for sentence in sentences for word in sentence.words}


def _scheme(task: str, config: LabeledSection, sentences: list[Sentence]) -> tuple[Scheme, list[str]]:
    if task == "classification":
        return "plain", []
    scheme = recognise(sentence.tags or () for sentence in sentences) if config.scheme == "auto" else config.scheme
    if scheme == "plain":
        if config.scheme == "auto":
            _refuse_broken_spans(sentences)
        return scheme, ["tags: plain, one a word" + (", recognised" if config.scheme == "auto" else "")]
    for sentence in sentences:
        for index, tag in enumerate(sentence.tags or ()):
            if parse(tag) is None:
                raise ValueError(f"{sentence.place(index)}: {tag!r} is no tag of the scheme {scheme} (data.scheme)")
    how = "recognised as" if config.scheme == "auto" else "read as"
    notes = [f"tags: {how} {scheme.upper()}" + ("" if scheme == "iob2" else ", converted to IOB2")]
    if scheme == "iob2":
        strays = [(sentence, index) for sentence in sentences for index in stray_insides(sentence.tags or ())]
        if strays:
            sentence, index = strays[0]
            notes.append(
                f"{len(strays)} I- tags go on nothing and were read as B-, the first in {sentence.place(index)}"
            )
    return scheme, notes


def _refuse_broken_spans(sentences: list[Sentence]) -> None:
    """A slip in a tag must not make plain tags of all the spans, which would be learnt and scored as something else."""
    spans, odd = 0, []
    for sentence in sentences:
        for index, tag in enumerate(sentence.tags or ()):
            spans += tag.startswith(("B-", "I-"))
            if parse(tag) is None:
                odd.append(f"{sentence.place(index)}: {tag!r}")
    if odd and len(odd) < spans:
        raise ValueError(
            f"{odd[0]} is no span tag, but {spans:,} others are; mend it, or take all tags as they are with "
            "data.scheme=plain"
        )


def _in_iob2(sentence: Sentence) -> Sentence:
    return sentence._replace(tags=to_iob2(sentence.tags or ()))


def _labels(train: list[Sentence], scheme: Scheme) -> tuple[str, ...]:
    """Sorted, O first; a kind of span always has both of its tags."""
    found = {tag for sentence in train for tag in sentence.tags or ()}
    if scheme == "plain":
        return tuple(sorted(found))
    kinds = sorted({tag[1:] for tag in found if tag != OUTSIDE})
    return (OUTSIDE, *(f"{prefix}{kind}" for kind in kinds for prefix in "BI"))


def _unlearnable(parts: dict[str, list[Sentence]], labels: set[str]) -> list[str]:
    """Labels that no training sentence has stay in dev and test as they are: every one counts as a mistake."""
    notes = []
    for name in ("dev", "test"):
        places: dict[str, tuple[int, str]] = {}
        for sentence in parts[name]:
            for index, tag in enumerate(sentence.tags or ()):
                if tag not in labels:
                    count, first = places.get(tag, (0, sentence.place(index)))
                    places[tag] = (count + 1, first)
        for tag, (count, first) in places.items():
            notes.append(
                f"{first}: the label {tag!r} ({count} in data.{name}) is not in the training data; never right"
            )
    return notes


def _share(sentences: list[Sentence], share: float) -> list[Sentence]:
    """The sentences that come first in an order that depends on their text alone; at least one."""
    count = max(1, round(share * len(sentences)))
    order = sorted(
        range(len(sentences)), key=lambda index: (text_hash("\t".join(sentences[index].words), "share"), index)
    )
    return [sentences[index] for index in sorted(order[:count])]


def _rule(train: list[Sentence]) -> SplitRule:
    if any(sentence.offsets is not None for sentence in train):
        return SPAN_RULE
    return learn_rule((sentence.words, sentence.text) for sentence in train)


def _fingerprint(parts: list[list[Sentence]]) -> str:
    digest = hashlib.sha256()
    for sentences in parts:
        for sentence in sentences:
            digest.update(json.dumps([sentence.words, sentence.tags]).encode())
        digest.update(b"\n")
    return digest.hexdigest()
