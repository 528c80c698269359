"""Doubts about labels to a list of those most likely wrong, with file and line, the worst first."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from bertkit.finetune.clinic.doubts import Doubt
from bertkit.terminal import printable
from data_pipelines.labels.sentence import Sentence

TIMES = 50
"""A label is likely wrong if the suggestion is this many times as probable. Of wrong labels planted into English
parts of speech this marks 91%, and 81% of what it marks was planted; the thresholds of confident learning, a
mean probability for each label, mark 79% and are right in 47%."""
_SHOWN, _SHOWN_CHARS = 10, 60


class Suspect(NamedTuple):
    """A label with which the model does not agree."""

    sentence: int
    """A place in the list of sentences."""
    doubt: Doubt
    likely: bool
    """Whether the suggestion is many times as probable as what was given."""


def find_suspects(doubts_S: Sequence[Sequence[Doubt]]) -> list[Suspect]:
    """All labels with which the model does not agree, the least probable first."""
    found = [
        Suspect(sentence, doubt, doubt.suggested_probability >= TIMES * doubt.probability)
        for sentence, doubts in enumerate(doubts_S)
        for doubt in doubts
        if doubt.differs
    ]
    # Of wrong labels planted into English parts of speech this finds more than the distance to the suggestion.
    return sorted(found, key=lambda suspect: (suspect.doubt.probability, suspect.sentence, suspect.doubt.words))


def as_record(suspect: Suspect, sentence: Sentence) -> dict[str, Any]:
    """A line of the list."""
    doubt = suspect.doubt
    facts = {
        "place": sentence.place(doubt.words[0]),
        "unit": doubt.unit,
        "text": _text(sentence, doubt.words),
        "given": doubt.given,
        "probability": round(doubt.probability, 4),
        "suggested": doubt.suggested,
        "suggested_probability": round(doubt.suggested_probability, 4),
        "likely": suspect.likely,
        "words": list(doubt.words),
    }
    if doubt.suggested_words != doubt.words:
        facts["suggested_words"] = list(doubt.suggested_words)
        facts["suggested_text"] = _text(sentence, doubt.suggested_words)
    return {**facts, "sentence": sentence.words}


def summary(suspects: Sequence[Suspect], doubts_S: Sequence[Sequence[Doubt]]) -> dict[str, Any]:
    """How many labels there are of each unit, how many are suspected and likely wrong, and which were confused."""
    labels = Counter(doubt.unit for doubts in doubts_S for doubt in doubts)
    suspected = Counter(suspect.doubt.unit for suspect in suspects)
    likely = Counter(suspect.doubt.unit for suspect in suspects if suspect.likely)
    confused = Counter(
        (suspect.doubt.unit, suspect.doubt.given, suspect.doubt.suggested) for suspect in suspects if suspect.likely
    )
    units = {
        unit: {"labels": labels[unit], "suspected": suspected[unit], "likely_wrong": likely[unit]} for unit in labels
    }
    return {"units": units, "confusions": [[*pair, count] for pair, count in confused.most_common(50)]}


def suspect_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What a terminal shows: the first of each unit, how many there are, and where all of them are listed."""
    for unit, counts in found["units"].items():
        yield (
            f"{counts['likely_wrong']:,} of {counts['labels']:,} {unit}s are likely labeled wrong; "
            f"the models disagree with {counts['suspected']:,}"
        )
        for record in islice((record for record in found["suspects"] if record["unit"] == unit), _SHOWN):
            instead = record.get("suggested_text")
            shown = f"{record['given']} → {record['suggested']}" + (f" ({instead})" if instead else "")
            yield printable(
                f"  {record['place']}  {_short(record['text'])}  {shown}  {record['suggested_probability']:.0%}"
            )
    yield f"all of them are in {found['list']}, and to look through in {found['page']}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _text(sentence: Sentence, words: tuple[int, int]) -> str:
    if sentence.text is not None and sentence.offsets is not None:
        return sentence.text[sentence.offsets[words[0]][0] : sentence.offsets[words[1] - 1][1]]
    return " ".join(sentence.words[slice(*words)])
