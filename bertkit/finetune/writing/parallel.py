"""Writing all slots at once, in a few passes: the surest tokens stay, the others are masked and asked again."""

# N slots of a row, M slots of a batch, V vocabulary

from collections.abc import Sequence

import numpy as np

from bertkit.finetune.windows import Ask, Row
from bertkit.finetune.writing.drafts import Draft, Pass
from bertkit.finetune.writing.script import Script, with_slots


def write_parallel(ask: Ask, script: Script, rows: Sequence[Row], passes: int) -> list[tuple[Draft, list[Pass]]]:
    """For each row's source a text, and what every pass decided.

    Pass k of n keeps the k/n surest slots. A slot that is asked again, beside those that were kept, changes only where
    it becomes surer than before.
    """
    ids = [np.full(len(row.index_M), script.mask) for row in rows]
    surest = [slots.copy() for slots in ids]
    sure = [np.zeros(len(row.index_M)) for row in rows]
    history: list[list[Pass]] = [[] for _ in rows]
    for number in range(1, passes + 1):
        asked = [with_slots(script, row, slots) for row, slots in zip(rows, ids, strict=True)]
        for index, (tokens, probability) in _answers(ask, script, asked):
            surer = (ids[index] == script.mask) & (probability > sure[index])
            surest[index] = np.where(surer, tokens, surest[index])
            sure[index] = np.where(surer, probability, sure[index])
            again = _least_sure(sure[index], number / passes)
            history[index].append(Pass(surest[index].tolist(), sure[index].tolist(), np.invert(again).tolist()))
            ids[index] = np.where(again, script.mask, surest[index])
    return [(_draft(script, one, here), passed) for one, here, passed in zip(surest, sure, history, strict=True)]


def _answers(ask: Ask, script: Script, rows: Sequence[Row]):
    """Of each row, with its index: the likeliest token of every slot, and its probability."""
    for chosen, logits in ask(rows):
        logits_MV = logits if isinstance(logits, np.ndarray) else logits.cpu().numpy()
        logits_MV[:, script.never_written] = -np.inf
        token_M = logits_MV.argmax(axis=1)
        highest_M1 = logits_MV.max(axis=1, keepdims=True)
        probability_M = 1 / np.exp(logits_MV - highest_M1).sum(axis=1)
        ends = np.cumsum([len(rows[index].index_M) for index in chosen])[:-1]
        yield from zip(chosen, zip(np.split(token_M, ends), np.split(probability_M, ends), strict=True), strict=True)


def _least_sure(sure_N: np.ndarray, kept: float) -> np.ndarray:
    """Which slots to mask again, so that this share is kept; of equally sure ones the later."""
    count = len(sure_N) - int(np.ceil(kept * len(sure_N)))
    again = np.zeros(len(sure_N), bool)
    again[np.argsort(sure_N[::-1], kind="stable")[:count]] = True
    return again[::-1]


def _draft(script: Script, ids_N: np.ndarray, sure_N: np.ndarray) -> Draft:
    """Up to the first end, where everything after it is cut; of slots between a source's tokens all that are not
    empty."""
    ends = np.flatnonzero(ids_N == script.end)
    asked = np.ones(len(ids_N), bool)
    if script.between is None and len(ends):
        asked[ends[0] + 1 :] = False
    score = float(np.log(np.maximum(sure_N[asked], 1e-30)).sum())
    return Draft(ids_N[asked & (ids_N != script.end)].tolist(), score, sure_N[asked].tolist())
