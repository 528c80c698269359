"""A tokenizer of any library, or plain numbers, enters; what masking must know of the vocabulary leaves."""

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from data_pipelines.masks.masking import MaskVocabulary

# How tokenizers that carry no names for their special tokens write them: BERT's way, then RoBERTa's.
WRITTEN_AS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
_UNUSED = re.compile(r"[\[<]unused_?\d+[\]>]")


class Vocabulary(NamedTuple):
    """What masking must know."""

    masking: MaskVocabulary
    pad_id: int
    pads_left: bool
    tokens: Mapping[str, int] | None
    """The tokens by name, where a tokenizer was given."""


def vocabulary_of(tokenizer: Any, special_ids: Iterable[int] = ()) -> Vocabulary:
    """Read our own tokenizer, a transformers tokenizer, or a `tokenizers.Tokenizer`; `special_ids` adds to its own."""
    pads_left = False
    kinds = ("special", "all_special_ids", "get_added_tokens_decoder")  # those below, in order
    if isinstance(tokenizer, type) or not any(hasattr(tokenizer, name) for name in kinds):
        raise ValueError(
            f"tokenizer must be a tokenizers.Tokenizer, a transformers tokenizer or what load_tokenizer opens, "
            f"got {tokenizer!r}"
        )
    added = _integers_of(special_ids)
    if hasattr(tokenizer, "special"):  # ours
        tokens, special = tokenizer.backend.get_vocab(), set(tokenizer.special.special_ids)
        mask_id, pad_id = tokenizer.special.mask_id, tokenizer.special.pad_id
    elif hasattr(tokenizer, "all_special_ids"):  # transformers
        tokens, special = tokenizer.get_vocab(), set(tokenizer.all_special_ids)
        mask_id, pad_id, pads_left = tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.padding_side == "left"
    else:
        tokens = tokenizer.get_vocab()
        special = special_ids_of(tokenizer, tokens)
        mask_id, pad_id = written("mask", tokens), written("pad", tokens)
    if not tokens:
        raise ValueError("this tokenizer has an empty vocabulary")
    if mask_id is None:
        raise ValueError("this tokenizer has no mask token; masked-language modelling needs one such as [MASK]")
    unused = {index for token, index in tokens.items() if _UNUSED.fullmatch(token)}
    special |= added
    ordinary = np.array(sorted(set(tokens.values()) - special - unused), np.int64)
    masking = _masking(mask_id, max(tokens.values()) + 1, special, ordinary)
    return Vocabulary(masking, 0 if pad_id is None else pad_id, pads_left, tokens)


def vocabulary_from_ids(mask_id: int, vocab_size: int, special_ids: Iterable[int], pad_id: int | None) -> Vocabulary:
    """The vocabulary that plain numbers describe; [MASK] and padding count as special."""
    special = _integers_of(special_ids) | {mask_id} | ({pad_id} if pad_id is not None else set())
    ordinary = np.array([index for index in range(vocab_size) if index not in special], np.int64)
    return Vocabulary(_masking(mask_id, vocab_size, special, ordinary), pad_id or 0, False, None)


def _integers_of(special_ids: Iterable[int]) -> set[int]:
    try:
        return set(map(operator.index, special_ids))
    except TypeError:
        raise ValueError(f"special_ids must be integers in a list or another sequence, got {special_ids!r}") from None


def _masking(mask_id: int, vocab_size: int, special_ids: set[int], ordinary: np.ndarray) -> MaskVocabulary:
    outside = [index for index in special_ids if not 0 <= index < vocab_size]
    if outside:
        raise ValueError(f"special id {outside[0]} lies outside a vocabulary of {vocab_size}")
    if not len(ordinary):
        raise ValueError("the vocabulary has no ordinary token to draw a replacement from")
    maskable_V = np.ones(vocab_size, bool)
    maskable_V[[*special_ids, mask_id]] = False
    return MaskVocabulary(mask_id, maskable_V, ordinary)


def written(role: str, tokens: Mapping[str, int]) -> int | None:
    """The id of a special token, found by the ways it is usually written."""
    return next((tokens[name] for name in WRITTEN_AS[role] if name in tokens), None)


def special_ids_of(backend: Any, tokens: Mapping[str, int]) -> set[int]:
    """All ids that a `tokenizers.Tokenizer` calls special, and those that are written like special ones."""
    special = {index for index, token in backend.get_added_tokens_decoder().items() if token.special}
    return special | {tokens[name] for names in WRITTEN_AS.values() for name in names if name in tokens}
