"""A model and texts enter; how surprised it is by each word, given all the others, leaves, per word and per byte.

Words and bytes are those of the text, so models with different tokenizers compare. When a piece is scored, the later
pieces of its word are hidden too: otherwise a word cut into many pieces would look easy, as its end gives it away.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F

from bertkit.model import MaskedLM, Pack
from data_pipelines.vocab.tokenizer import Tokenizer

# T tokens in the pack, M questions, one for each token of the texts


class PseudoPerplexity(NamedTuple):
    per_word: float
    per_byte: float
    bits_per_byte: float
    num_words: int
    num_bytes: int
    unknown_share: float
    """Share of the pieces that stand for unknown text; their surprise says nothing, so more than a few spoil it."""


def pseudo_perplexity(
    model: MaskedLM, tokenizer: Tokenizer, texts: Iterable[str], *, max_words: int, seq_len: int
) -> PseudoPerplexity:
    """Over the first texts, until they have `max_words` words; every piece of them is scored once."""
    if tokenizer.special.mask_id is None:
        raise ValueError("this tokenizer has no mask token, so nothing can be asked")
    nats, num_words, num_bytes, num_pieces, num_unknown = 0.0, 0, 0, 0, 0
    for text in texts:
        words = text.split()[: max_words - num_words]
        text = " ".join(words)
        num_words += len(words)
        num_bytes += len(text.encode())
        encoding = tokenizer.backend.encode(text, add_special_tokens=False)
        for ids, word_ids in windows(encoding.ids, encoding.word_ids, seq_len - 2):
            nats += surprise(model, tokenizer, ids, word_ids)
            num_pieces += len(ids)
            num_unknown += sum(index == tokenizer.special.unk_id for index in ids)
        if num_words >= max_words:
            break
    if not num_pieces:
        raise ValueError("the texts hold nothing to score")
    return PseudoPerplexity(
        per_word=math.exp(min(nats / num_words, 700.0)),
        per_byte=math.exp(nats / num_bytes),
        bits_per_byte=nats / num_bytes / math.log(2),
        num_words=num_words,
        num_bytes=num_bytes,
        unknown_share=num_unknown / num_pieces,
    )


def windows(ids: list[int], word_ids: list[int | None], size: int) -> Iterator[tuple[list[int], list[int | None]]]:
    """Stretches of at most `size` pieces, cut between words where a word does not fill a stretch by itself."""
    start = 0
    while start < len(ids):
        end = min(start + size, len(ids))
        if end < len(ids):
            cut = end
            while cut > start and word_ids[cut] == word_ids[cut - 1]:
                cut -= 1
            end = cut if cut > start else end
        yield ids[start:end], word_ids[start:end]
        start = end


@torch.no_grad()
def surprise(model: MaskedLM, tokenizer: Tokenizer, ids: list[int], word_ids: list[int | None]) -> float:
    """Summed negative log probability of the pieces of one stretch, in nats."""
    device = next(model.parameters()).device
    special = tokenizer.special
    first = [] if special.cls_id is None else [special.cls_id]
    last = [] if special.sep_id is None else [special.sep_id]
    length = len(first) + len(ids) + len(last)
    at_once = max(1, 8192 // length)
    total = 0.0
    for begin in range(0, len(ids), at_once):
        asked = range(begin, min(begin + at_once, len(ids)))
        rows = []
        for place in asked:
            end = place + 1
            while end < len(ids) and word_ids[end] == word_ids[place] is not None:
                end += 1
            rows.append([*first, *ids[:place], *[special.mask_id] * (end - place), *ids[end:], *last])
        batch = Pack(
            input_ids=torch.tensor(rows, device=device).flatten(),
            position_ids=torch.arange(length, device=device).repeat(len(rows)),
            cu_seqlens=torch.arange(0, (len(rows) + 1) * length, length, device=device, dtype=torch.int32),
            max_seqlen=length,
        )
        index_M = torch.tensor([row * length + len(first) + place for row, place in enumerate(asked)], device=device)
        logits_MV = model.project(model.encoder.encode(batch)[index_M])
        targets_M = torch.tensor([ids[place] for place in asked], device=device)
        total += float(F.cross_entropy(logits_MV.float(), targets_M, reduction="sum"))
    return total
