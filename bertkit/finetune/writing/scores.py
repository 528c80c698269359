"""How close written texts are to the right ones, and what simple rules would have written."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from statistics import fmean
from typing import Any

from data_pipelines.labels.sentence import Sentence

_LONGEST_EDITED = 64
"""Characters of the longest source whose edit is looked for."""
_MOST_EDITS = 8
"""Edits of the same features that are remembered, the most frequent ones."""
Edit = tuple[str, str, str, str]
"""What precedes the common part in source and target, and what follows it in both."""


def text_scores(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """Exact match, mean edit distance and mean F1 of the characters, whatever their order."""
    pairs = list(zip(gold, predicted, strict=True))
    return {
        "texts": len(pairs),
        "exact": fmean(right == written for right, written in pairs) if pairs else 0.0,
        "edit_distance": fmean(edit_distance(*pair) for pair in pairs) if pairs else 0.0,
        "character_f1": fmean(_character_f1(*pair) for pair in pairs) if pairs else 0.0,
    }


def edit_distance(one: str, other: str) -> int:
    """Characters to insert, delete or replace to make one of the other."""
    row = list(range(len(other) + 1))
    for number, char in enumerate(one, start=1):
        before, row[0] = row[0], number
        for place, its_char in enumerate(other, start=1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (char != its_char))
    return row[-1]


def _character_f1(gold: str, predicted: str) -> float:
    if not gold and not predicted:
        return 1.0
    return 2 * (Counter(gold) & Counter(predicted)).total() / (len(gold) + len(predicted))


def frequent_edits(pairs: Iterable[Sentence]) -> dict[str, list[Edit]]:
    """For each bundle of features the most frequent edits that made targets of sources, plain values to remember."""
    counts: dict[str, Counter[Edit]] = defaultdict(Counter)
    for pair in pairs:
        assert pair.tags is not None
        if len(pair.words[0]) <= _LONGEST_EDITED and len(pair.tags[0]) <= _LONGEST_EDITED:
            counts[_bundle(pair)][_edit(pair.words[0], pair.tags[0])] += 1
    return {
        bundle: [edit for edit, _ in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_MOST_EDITS]]
        for bundle, found in counts.items()
    }


def apply_edits(known: Mapping[str, Sequence[Sequence[str]]], pair: Sentence) -> str:
    """The source with the most frequent edit of its features that fits it; where none does, the source."""
    source = pair.words[0]
    for before, new_before, after, new_after in known.get(_bundle(pair), ()):
        if source.startswith(before) and source.endswith(after) and len(source) >= len(before) + len(after):
            return new_before + source[len(before) : len(source) - len(after)] + new_after
    return source


def _bundle(pair: Sentence) -> str:
    return ";".join(pair.words[1:])


def _edit(source: str, target: str) -> Edit:
    """What changes around the longest part that both have."""
    a, b, size = SequenceMatcher(None, source, target, autojunk=False).find_longest_match()
    return source[:a], target[:b], source[a + size :], target[b + size :]
