"""The sentences most worth labelling next: those the model is least sure of, and no two of them alike."""

# P sentences held, F features

import heapq
import math
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from bertkit.finetune.predict.outputs import Answer

_HELD_FOR_EACH, _LEAST_HELD = 20, 1000
"""Of a stream, the most uncertain sentences are held to choose from: 20 for each that is asked for, at least 1,000."""
_NUM_FEATURES = 2048
_GRAM = 4
"""Characters of the pieces by which sentences are compared: they need no words, and forms of a word share them."""


def next_to_label(answers: Iterable[Answer], most: int) -> list[Answer]:
    """At most `most` of the answers, the best first: the less sure an answer is, and the less it resembles those
    already chosen, the better. Copies are taken once. Each record gets its score and its place."""
    held = _most_uncertain(answers, max(_HELD_FOR_EACH * most, _LEAST_HELD))
    vectors_PF = _vectors([_text(answer) for _, answer in held])
    worth_P = np.array([uncertainty for uncertainty, _ in held])
    chosen = []
    for _ in range(min(most, len(held))):
        best = int(worth_P.argmax())
        uncertainty, answer = held[best]
        chosen.append(answer._replace(part=answer.part._replace(**_noted(answer, uncertainty))))
        # Half as alike as a copy leaves half the worth; what was chosen is never chosen again.
        worth_P *= 1 - np.clip(vectors_PF @ vectors_PF[best], 0.0, 1.0)
        worth_P[best] = -1.0
    return chosen


def _most_uncertain(answers: Iterable[Answer], most: int) -> list[tuple[float, Answer]]:
    """The most uncertain first; of copies the first one."""
    heap: list[tuple[float, int, str, Answer]] = []
    texts: set[str] = set()
    for number, answer in enumerate(answers):
        uncertainty = _uncertainty(answer)
        text = _text(answer) if uncertainty is not None else ""
        if uncertainty is None or text in texts:
            continue
        texts.add(text)
        heapq.heappush(heap, (uncertainty, -number, text, answer))
        if len(heap) > most:
            texts.remove(heapq.heappop(heap)[2])
    return [
        (uncertainty, answer) for uncertainty, _, _, answer in sorted(heap, key=lambda each: each[:2], reverse=True)
    ]


def _uncertainty(answer: Answer) -> float | None:
    if answer.result is None:
        return None
    if not hasattr(answer.result, "uncertainty"):
        raise ValueError("--ask needs a model with confidences, which this task does not have")
    return answer.result.uncertainty


def _text(answer: Answer) -> str:
    """What is compared: neither capitals nor digits make a sentence another one."""
    given = answer.part.given
    text = given if isinstance(given, str) else " ".join(given or ())
    return " ".join("".join("0" if char.isdigit() else char for char in text.lower()).split())


def _vectors(texts: list[str]) -> np.ndarray:
    """(P, F) of length 1: which pieces of characters a text has, the rare ones with more weight."""
    found_PF = np.zeros((len(texts), _NUM_FEATURES), np.float32)
    for row, text in enumerate(texts):
        grams = {text[start : start + _GRAM] for start in range(max(1, len(text) - _GRAM + 1))}
        for gram in grams:
            found_PF[row, zlib.crc32(gram.encode(errors="replace")) % _NUM_FEATURES] = 1.0
    found_PF *= np.log((1 + len(texts)) / (1 + found_PF.sum(axis=0))) + 1
    return found_PF / np.maximum(np.linalg.norm(found_PF, axis=1, keepdims=True), 1e-9)


def _noted(answer: Answer, uncertainty: float) -> dict[str, Any]:
    """What is added to the part; a record of an annotation tool stays as the tool made it."""
    part = answer.part
    lines = part.fill
    changed: dict[str, Any] = {"fill": lambda tags: _closed(list(lines(tags)))}
    if not isinstance((part.record or {}).get("data"), dict):
        noted = {"place": part.place, "uncertainty": round(uncertainty, 4) if math.isfinite(uncertainty) else None}
        changed["record"] = {**(part.record or {}), **noted}
    return changed


def _closed(lines: list[str]) -> Iterable[str]:
    """The lines of a sentence with a blank one at their end, which the last sentence of a file may lack."""
    return [*lines, ""] if lines and lines[-1].strip() else lines
