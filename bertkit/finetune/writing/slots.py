"""Slots between the tokens of a source, and which token of a target each of them is to hold.

Before the source stand a few slots, behind each of its tokens two, for what becomes of it and for what is inserted, and
at its end a few more. Slots that a target does not need stay empty. So a form that is shifted against its lemma
(absetzen, setzten ab) is copied from the neighbouring token all the same: nothing has to count.
"""

# P tokens of a source, N tokens of a target, S slots

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

EMPTY = -1
_PER_TOKEN = 2
_SAMPLE, _MOST_ENDS = 2000, 64
"""Pairs that tell how many slots the ends of a source need, and the most that an end gets."""
_CHANGED, _DROPPED, _INSERTED, _ADDED = 1.25, 1.0, 1.1, 1.0
"""What it costs to change a token, to drop it, to insert one between two tokens, and to add one at either end: a kept
token costs nothing. The cheapest way is learnt."""


class Slots(NamedTuple):
    before: int
    after: int

    def count(self, source_length: int) -> int:
        return self.before + _PER_TOKEN * source_length + self.after

    def source_length(self, count: int) -> int:
        return (count - self.before - self.after) // _PER_TOKEN

    def widened(self, more: int) -> "Slots":
        """With more slots at the end."""
        return self._replace(after=self.after + more)

    def positions(self, source_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Of the source's tokens and of the slots, from 0, where each stands between the others."""
        place_P = self.before + (_PER_TOKEN + 1) * np.arange(source_length)
        return place_P, np.setdiff1d(np.arange(self.count(source_length) + source_length), place_P)


def align(source_P: np.ndarray, target_N: np.ndarray, slots: Slots) -> np.ndarray:
    """(S,) what each slot holds of the target, in its order, at least cost; slots fill from the left where that is
    equal. A target for which there is too little room is cut."""
    kept_S, hold_S, empty_S = _costs(source_P, slots)
    target_N = target_N[: len(kept_S)]
    cost = np.full(len(target_N) + 1, np.inf)
    cost[0] = 0
    held = np.zeros((len(kept_S), len(target_N) + 1), bool)
    for slot, (kept, hold, empty) in enumerate(zip(kept_S, hold_S, empty_S, strict=True)):
        holding = cost[:-1] + np.where(target_N == kept, 0, hold)
        cost = cost + empty
        held[slot, 1:] = holding < cost[1:]
        cost[1:] = np.minimum(holding, cost[1:])
    found_S = np.full(len(kept_S), EMPTY, np.int64)
    left = len(target_N)
    for slot in reversed(range(len(kept_S))):
        if held[slot, left]:
            left -= 1
            found_S[slot] = target_N[left]
    return found_S


def _costs(source_P: np.ndarray, slots: Slots) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each slot: the token that it holds for nothing, what any other costs, and what it costs to stay empty."""
    count, changed = slots.count(len(source_P)), slots.before + _PER_TOKEN * np.arange(len(source_P))
    kept_S, hold_S, empty_S = np.full(count, EMPTY), np.full(count, _INSERTED), np.zeros(count)
    hold_S[: slots.before] = _ADDED
    hold_S[count - slots.after - 1 :] = _ADDED
    kept_S[changed], hold_S[changed], empty_S[changed] = source_P, _CHANGED, _DROPPED
    return kept_S, hold_S, empty_S


def fitting_slots(pairs: Sequence[tuple[np.ndarray, np.ndarray]], share: float) -> Slots:
    """As many slots before and after a source as this share of the pairs needs; of many pairs a sample tells."""
    sample = pairs[:: max(1, len(pairs) // _SAMPLE)]
    most = min(max(len(target) for _, target in sample), _MOST_ENDS)
    ends = np.r_[:most, -most:0]
    held = np.array([align(*pair, Slots(most, most))[ends] != EMPTY for pair in sample])
    before, after = np.sort(held[:, :most].sum(axis=1)), np.sort(held[:, most:].sum(axis=1))
    at = min(len(sample) - 1, int(share * len(sample)))
    return Slots(int(before[at]), int(after[at]))
