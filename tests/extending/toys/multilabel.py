"""A fine-tuning task: a text has any number of labels, written as one: "old+quiet"."""

from dataclasses import replace

import numpy as np
from torch.nn.functional import binary_cross_entropy_with_logits

from bertkit.finetune.answers import Confidence, word_logits
from bertkit.finetune.labeled import make_labeled, read_parts
from bertkit.finetune.tasks import TASKS
from bertkit.finetune.tasks.classification import CLASSIFICATION
from data_pipelines.labels.tagged import Sentence, read_labeled_texts

# M answers, K labels


def labels_of(text: Sentence) -> list[str]:
    return text.tags[0].split("+")


def read(config):
    parts = read_parts(read_labeled_texts, config)
    labels = {label for text in parts["train"] for label in labels_of(text)}
    return make_labeled(parts, sorted(labels), notes=[], train_share=config.train_share)


def targets(row, text, number, settings):
    return np.float32([[label in labels_of(text) for label in number]])


def loss(logits_MK, targets_MK, weights_K):
    return binary_cross_entropy_with_logits(logits_MK, targets_MK, weights_K, reduction="sum")


def predict(ask, texts, rows, labels, settings):
    probabilities = (1 / (1 + np.exp(-word_logits(ask, [1] * len(texts), rows)))).tolist()
    chosen = [[label for label, p in zip(labels, each, strict=True) if p > 0.5] for each in probabilities]
    return [(["+".join(names)], Confidence([max(each)])) for names, each in zip(chosen, probabilities, strict=True)]


TASKS.add("multilabel", replace(CLASSIFICATION, read=read, targets=targets, loss=loss, predict=predict))
