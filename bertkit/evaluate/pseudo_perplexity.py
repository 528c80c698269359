"""Pseudo-perplexity: how surprised a model is by each word of a text, given all the others, per word and per byte.

Words and bytes are those of the text, so models with different tokenizers compare.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from bertkit.evaluate.pseudo_likelihood import Sentence, encode_sentences, token_log_probs
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.vocab.tokenizer import Tokenizer


class PseudoPerplexity(NamedTuple):
    per_word: float
    per_byte: float
    bits_per_byte: float
    num_words: int
    num_bytes: int
    unknown_share: float
    """Share of the subwords that are unknown; their scores mean nothing, so more than a few make the result useless."""


def pseudo_perplexity(
    target_logits: Callable[[PackedBatch], Any],
    device: Any,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    max_words: int,
    seq_len: int,
) -> PseudoPerplexity:
    """Over the first texts, until they have `max_words` words; every piece of them is scored once, as
    `token_log_probs` asks for it."""
    stretches: list[Sentence] = []
    num_words, num_bytes = 0, 0
    for text in texts:
        words = text.split()[: max_words - num_words]
        text = " ".join(words)
        num_words += len(words)
        num_bytes += len(text.encode())
        stretches += windows(encode_sentences(tokenizer, [text])[0], seq_len - 2)
        if num_words >= max_words:
            break
    pieces = [index for stretch in stretches for index in stretch.ids]
    if not pieces:
        raise ValueError("the texts hold nothing to score")
    log_probs = token_log_probs(target_logits, tokenizer.special, stretches, device)
    nats = -sum(float(stretch.sum()) for stretch in log_probs)
    return PseudoPerplexity(
        per_word=math.exp(min(nats / num_words, 700.0)),
        per_byte=math.exp(nats / num_bytes),
        bits_per_byte=nats / num_bytes / math.log(2),
        num_words=num_words,
        num_bytes=num_bytes,
        unknown_share=sum(index == tokenizer.special.unk_id for index in pieces) / len(pieces),
    )


def windows(text: Sentence, size: int) -> Iterator[Sentence]:
    """Stretches of at most `size` pieces, cut between words where a word does not fill a stretch by itself."""
    ids, word_ids = text
    start = 0
    while start < len(ids):
        end = min(start + size, len(ids))
        if end < len(ids):
            cut = end
            while cut > start and word_ids[cut] == word_ids[cut - 1]:
                cut -= 1
            end = cut if cut > start else end
        yield Sentence(ids[start:end], word_ids[start:end])
        start = end
