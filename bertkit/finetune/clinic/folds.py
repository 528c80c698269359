"""Sentences to folds: parts of about the same size. A model that learns from the others has seen nothing of a fold."""

from collections.abc import Sequence

from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.digest import text_hash


def folds_of(sentences: Sequence[Sentence], folds: int, seed: int, documents: bool = False) -> list[int]:
    """The fold of each sentence, a function of its words and the seed. Copies of a sentence share a fold: the label
    of the one must not vouch for the other. Where sentences see their neighbours, `documents` stay whole."""
    groups: list[list[str]] = []
    group_S = []
    for sentence in sentences:
        if not (documents and sentence.follows and groups):
            groups.append([])
        groups[-1].append("\t".join(sentence.words))
        group_S.append(len(groups) - 1)
    texts = ["\n".join(group) for group in groups]
    order = sorted(set(texts), key=lambda text: (text_hash(f"{seed}\t{text}", "fold"), text))
    if len(order) < folds:
        what = "documents" if documents else "sentences"
        raise ValueError(f"{folds} folds need as many different {what}, but data.train has {len(order)}")
    fold = {text: index % folds for index, text in enumerate(order)}
    return [fold[texts[group]] for group in group_S]
