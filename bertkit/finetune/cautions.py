"""What makes a result doubtful, said where the result is: at the end of a run and in its report."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bertkit.finetune.score_tables import shown_score
from bertkit.finetune.tasks.task import Task
from bertkit.finetune.tuning_data import Steps, TuningData
from bertkit.finetune.windows import Row

_PARTS = ("dev", "test")
_MOST_UNKNOWN = 0.02
_FEW_STEPS = 50
_MOST_SHARED = 0.01
_LONG_ENOUGH = 20
"""A sentence of this many letters is not repeated by chance; shorter ones, such as thanks, are in every corpus. A wide
character, such as a Chinese one, counts as two letters."""


def cautions(data: TuningData, steps: Steps, results: Mapping[str, Any]) -> list[str]:
    """A sentence for each, with the numbers and a remedy; nothing where all is well."""
    found = [text for part in _PARTS if part in results for text in _below_baselines(data.task, part, results)]
    return [*found, *_unknown_text(data), *_few_steps(steps), *_shared_sentences(data)]


def _below_baselines(task: Task, part: str, results: Mapping[str, Any]) -> Iterator[str]:
    name, mean = results["score"], results[part]["mean"]
    column = next(column for column in task.columns if column.key == name)
    for baseline, scores in results[part]["baselines"].items():
        if mean <= scores[name] and mean < 1:  # nothing is better than a perfect score
            own, its = shown_score({name: mean}, column), shown_score(scores, column)
            yield (
                f"{part} {column.title} {own} is no better than {its} of the baseline {baseline!r}; try more epochs, "
                "more labels, or an encoder pretrained longer on such text"
            )


def _unknown_text(data: TuningData) -> Iterator[str]:
    unknown = data.start.tokenizer.special.unk_id
    if unknown is None:
        return
    for part in ("train", *_PARTS):
        share = _share_of(data.rows[part], unknown, len(data.form.before) + len(data.form.after))
        if share > _MOST_UNKNOWN:
            yield (
                f"the tokenizer does not know {share:.1%} of the subwords of data.{part}; take an encoder whose "
                "tokenizer was made for this language and script"
            )


def _share_of(rows: Sequence[Row], token: int, num_special: int) -> float:
    """Of all subwords but the special ones at the ends of windows."""
    count = sum(int(np.count_nonzero(row.ids_L == token)) for row in rows)
    return count / max(sum(len(row.ids_L) - num_special * row.num_windows for row in rows), 1)


def _few_steps(steps: Steps) -> Iterator[str]:
    if steps.total < _FEW_STEPS:
        yield f"training had only {steps.total} steps; raise train.epochs or lower train.global_batch ({steps.batch})"


def _shared_sentences(data: TuningData) -> Iterator[str]:
    known = {tuple(sentence.words) for sentence in data.labeled.train}
    for part in _PARTS:
        sentences = [sentence for sentence in data.sentences(part) if _letters(sentence.words) >= _LONG_ENOUGH]
        shared = [sentence for sentence in sentences if tuple(sentence.words) in known]
        if len(shared) > _MOST_SHARED * len(sentences):
            yield (
                f"{len(shared):,} of {len(sentences):,} longer {data.task.examples} of data.{part} are in the training "
                f"data too, the first in {shared[0].place()}; scores on them do not measure new text"
            )


def _letters(words: Sequence[str]) -> int:
    return sum(1 + (unicodedata.east_asian_width(character) == "W") for word in words for character in word)
