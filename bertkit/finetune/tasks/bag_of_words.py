"""A baseline without an encoder: a linear model on the weighted words and word pairs of a text."""

# N texts, F terms, K outputs

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import hypot, log
from typing import Any, NamedTuple

import numpy as np

from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.characters import IDEOGRAPHS, KANA

_MAX_TERMS = 100_000
_STRENGTH = 10.0
"""How much the training texts count against small weights: C of the usual libraries."""
_TERM = re.compile(rf"[{IDEOGRAPHS}{KANA}]|\w+|[^\w\s]")


def bag_of_words(
    train: Sequence[Sentence],
    targets: Any,
    texts: Sequence[Sentence],
    loss: Callable[[Any, Any, Any], Any] | None = None,
) -> np.ndarray:
    """Logits (N, K) of `texts` by the linear model that fits the training texts best: to the number of their label, or,
    with a task's own loss, to the rows of `targets`."""
    import torch  # here, because reports name tasks without it
    import torch.nn.functional as F

    loss = loss or (lambda logits_NK, targets_N, _: F.cross_entropy(logits_NK, targets_N, reduction="sum"))
    num_outputs = int(targets.max()) + 1 if targets.ndim == 1 else targets.shape[1]
    targets = torch.from_numpy(targets)
    counts = [_count_terms(text.words) for text in train]
    held_by = Counter(chain.from_iterable(counts))
    least = 2 if len(train) >= 100 else 1
    terms = [(term, num_texts) for term, num_texts in held_by.most_common(_MAX_TERMS) if num_texts >= least]
    rarity = {term: (index, log((1 + len(train)) / (1 + held)) + 1) for index, (term, held) in enumerate(terms)}
    inputs, bias_K = _bags(counts, rarity), torch.zeros(num_outputs, requires_grad=True)
    weights_FK = torch.zeros(len(terms) + 1, num_outputs, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights_FK, bias_K], max_iter=100, line_search_fn="strong_wolfe")

    def logits(bags: _Bags) -> Any:
        summed = F.embedding_bag(bags.terms, weights_FK, bags.starts, mode="sum", per_sample_weights=bags.weights)
        return summed + bias_K

    def penalized_loss() -> Any:
        optimizer.zero_grad()
        total = loss(logits(inputs), targets, None) + weights_FK.square().sum() / (2 * _STRENGTH)
        total.backward()
        return total

    optimizer.step(penalized_loss)
    with torch.no_grad():
        return logits(_bags((_count_terms(text.words) for text in texts), rarity)).numpy()


def _count_terms(parts: Sequence[str]) -> Counter[str]:
    """Words and pairs of neighbours; those of a second text are their own terms."""
    found: Counter[str] = Counter()
    for number, text in enumerate(parts):
        words = [f"{number} {word}" for word in _TERM.findall(text.lower())]
        found.update(words)
        found.update(map("{} {}".format, words, words[1:]))
    return found


class _Bags(NamedTuple):
    """The terms of all texts one after the other, with their weights, and where each text begins."""

    terms: Any
    weights: Any
    starts: Any


def _bags(counts: Iterable[Counter[str]], rarity: dict[str, tuple[int, float]]) -> _Bags:
    """The logarithm of a term's count times its rarity (TF-IDF), so that the squares of a text add up to 1."""
    import torch

    terms, weights, starts = array("q"), array("f"), array("q")
    for found in counts:
        known = [(*rarity[term], count) for term, count in found.items() if term in rarity]
        row = [(1 + log(count)) * weight for _, weight, count in known]
        size = hypot(*row) or 1.0
        starts.append(len(terms))
        terms.extend(index for index, _, _ in known)
        weights.extend(weight / size for weight in row)
    return _Bags(*(torch.tensor(np.array(values)) for values in (terms, weights, starts)))
