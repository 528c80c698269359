"""How likely each token of a sentence is, given all the others: sentences enter, log-probabilities leave.

A token is asked for with a mask in its place. Word-wise, the later tokens of its word are hidden too: otherwise a word
cut into many tokens would look easy, as its end gives it away. Sentences of one length are computed together, so that
nothing is padded; two that are the same once their difference is masked are computed once.
"""

# S sentences of one length, L tokens of each, Q questions, one a token, U questions that differ, T tokens in the pack,
# V vocabulary

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertkit.evaluate.buckets import log_probs
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.vocab.tokenizer import SpecialIds, Tokenizer

BATCH_TOKENS = 8192
"""Tokens that are computed at once."""


class Sentence(NamedTuple):
    ids: tuple[int, ...]
    word_ids: tuple[int | None, ...]
    """The number of each token's word; None where the tokenizer sees no word."""


def encode_sentences(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Sentence]:
    encodings = tokenizer.backend.encode_batch(list(texts), add_special_tokens=False)
    return [Sentence(tuple(encoding.ids), tuple(encoding.word_ids)) for encoding in encodings]


def token_log_probs(
    target_logits: Callable[[PackedBatch], Any],
    special: SpecialIds,
    sentences: Sequence[Sentence],
    device: Any,
    *,
    word_wise: bool = True,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[np.ndarray]:
    """The log-probability of every token of every sentence, in nats. Torch computes on this device; without one,
    `target_logits` takes and gives arrays. `report` gets the tokens done, and in all."""
    if special.mask_id is None:
        raise ValueError("this tokenizer has no mask token, so no token can be masked")
    found = [np.empty(0)] * len(sentences)
    done, total = 0, sum(len(sentence.ids) for sentence in sentences)
    for indices in _by_length(sentences):
        ids_SL = np.array([sentences[index].ids for index in indices])
        ends_SL = np.array([_ends(sentences[index], word_wise) for index in indices])
        log_probs_SL = np.empty(ids_SL.shape)
        at_once = max(1, BATCH_TOKENS // (ids_SL.shape[1] + 2))
        for first in range(0, ids_SL.size, at_once):
            asked = slice(first, min(first + at_once, ids_SL.size))
            questions, question_Q = _questions(ids_SL, ends_SL, asked, special)
            answer = _answer_arrays if device is None else _answer_tensors
            target_Q = ids_SL.reshape(-1)[asked]
            log_probs_SL.reshape(-1)[asked] = answer(target_logits, questions, question_Q, target_Q, device)
            done += asked.stop - asked.start
            report(done, total)
        for index, row in zip(indices, log_probs_SL, strict=True):
            found[index] = row
    return found


def _by_length(sentences: Sequence[Sentence]) -> Iterator[list[int]]:
    """The sentences with any token, those of one length together, in the order given."""
    by_length: dict[int, list[int]] = {}
    for index, sentence in enumerate(sentences):
        by_length.setdefault(len(sentence.ids), []).append(index)
    yield from (by_length[length] for length in sorted(by_length) if length)


def _ends(sentence: Sentence, word_wise: bool) -> list[int]:
    """For each token where the tokens end that are hidden with it."""
    words = sentence.word_ids
    ends = list(range(1, len(words) + 1))
    for place in reversed(range(len(words) - 1)):
        if word_wise and words[place] == words[place + 1] is not None:
            ends[place] = ends[place + 1]
    return ends


def _questions(
    ids_SL: np.ndarray, ends_SL: np.ndarray, asked: slice, special: SpecialIds
) -> tuple[PackedBatch, np.ndarray]:
    """The questions about these of the sentences' tokens, each once, and which of them each token asks."""
    sentence_Q, place_Q = np.divmod(np.arange(asked.start, asked.stop), ids_SL.shape[1])
    column_L = np.arange(ids_SL.shape[1])
    hidden_QL = (column_L >= place_Q[:, None]) & (column_L < ends_SL[sentence_Q, place_Q][:, None])
    masked_QL = ids_SL[sentence_Q]
    masked_QL[hidden_QL] = special.mask_id
    distinct, question_Q = np.unique(np.column_stack([masked_QL, place_Q]), axis=0, return_inverse=True)
    before, after = ([] if index is None else [index] for index in (special.cls_id, special.sep_id))
    num, length = len(distinct), len(before) + ids_SL.shape[1] + len(after)
    rows = np.hstack([np.tile(before, (num, 1)), distinct[:, :-1], np.tile(after, (num, 1))]).astype(np.int64)
    starts = np.arange(num) * length
    return (
        PackedBatch(
            input_ids=rows.reshape(-1),
            position_ids=np.tile(np.arange(length), num),
            cu_seqlens=np.arange(0, (num + 1) * length, length, dtype=np.int32),
            max_seqlen=length,
            target_index=starts + len(before) + distinct[:, -1],
            target_ids=None,
        ),
        question_Q.reshape(-1),
    )


def _answer_arrays(target_logits: Any, questions: PackedBatch, question_Q: Any, target_Q: Any, _: None) -> np.ndarray:
    return log_probs(target_logits(questions)[question_Q], target_Q)


def _answer_tensors(
    target_logits: Any, questions: PackedBatch, question_Q: Any, target_Q: Any, device: Any
) -> np.ndarray:
    import torch

    with torch.no_grad():
        logits_UV = target_logits(questions.map(torch.from_numpy).to(device)).float()
        question_Q, target_Q = (torch.from_numpy(array).to(device) for array in (question_Q, target_Q))
        log_probs_Q = logits_UV[question_Q, target_Q] - logits_UV.logsumexp(dim=1)[question_Q]
        return log_probs_Q.cpu().numpy()
