"""Logits of rows to one label for each word, whatever the split into windows, batches and ranks."""

# W words over all sentences, M answers, K labels

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from bertkit.finetune.windows import Row
from data_pipelines.labels.sentence import Sentence

if TYPE_CHECKING:
    from torch import Tensor

    from bertkit.finetune.tasks.task import Ask


def predict_labels(
    ask: "Ask", sentences: Sequence[Sentence], rows: Sequence[Row], labels: Sequence[str]
) -> list[tuple[list[str], list[float]]]:
    """For each sentence the likeliest label of every word, and its probability."""
    if not rows:
        return [([], []) for _ in sentences]
    num_words = [len(sentence.words) for sentence in sentences]
    logits_WK = word_logits(ask, num_words, rows)
    best_W = logits_WK.argmax(dim=1)
    probability_W = logits_WK.softmax(dim=1).gather(1, best_W[:, None])[:, 0].tolist()
    label_W = [labels[index] for index in best_W.tolist()]
    borders = pairwise([0, *accumulate(num_words)])
    return [(label_W[start:end], probability_W[start:end]) for start, end in borders]


def word_logits(ask: "Ask", num_words: Sequence[int], rows: Sequence[Row]) -> "Tensor":
    """(W, K), the words of all sentences one after the other; several answers for one word are averaged."""
    import torch  # here, because reports name tasks without it

    starts = [0, *accumulate(num_words)]
    word_M, logits_MK = [], []
    for chosen, logits in ask(rows):
        word_M += [rows[index].word_M + starts[rows[index].sentence] for index in chosen]
        logits_MK.append(logits)
    index_M = torch.from_numpy(np.concatenate(word_M)).to(logits_MK[0].device)
    answers_W = torch.bincount(index_M, minlength=starts[-1]).clamp(min=1)
    sum_WK = logits_MK[0].new_zeros(starts[-1], logits_MK[0].shape[1])
    return sum_WK.index_add(0, index_M, torch.cat(logits_MK)) / answers_W[:, None]
