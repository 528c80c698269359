"""What masking must know of a vocabulary, from a tokenizer of any library or from plain numbers."""

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

# How tokenizers that do not say which tokens are special spell them: BERT's way, then RoBERTa's.
SPELLINGS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
_UNUSED = re.compile(r"[\[<]unused_?\d+[\]>]")


class Vocabulary(NamedTuple):
    """V tokens."""

    mask_id: int
    maskable_V: np.ndarray
    """bool: whether a token may be a target; special tokens may not."""
    drawable: np.ndarray
    """Ids that may replace another token."""
    pad_id: int | None = None
    pads_left: bool = False
    pad_type: int = 0
    """What `token_type_ids` hold at padding."""
    tokens: Mapping[str, int] | None = None
    """The ids by spelling, where a tokenizer was given."""


def vocabulary_of(tokenizer: Any, special_ids: Iterable[int] = ()) -> Vocabulary:
    """Read our own tokenizer, a transformers tokenizer, or a `tokenizers.Tokenizer`; `special_ids` adds to its own."""
    pads_left, pad_type = False, 0
    kinds = ("special", "all_special_ids", "get_added_tokens_decoder")  # those below, in order
    if isinstance(tokenizer, type) or not any(hasattr(tokenizer, name) for name in kinds):
        raise ValueError(
            f"tokenizer must be a tokenizers.Tokenizer, a transformers tokenizer or what load_tokenizer opens, "
            f"got {tokenizer!r}"
        )
    added = _integers_of(special_ids)
    if hasattr(tokenizer, "special"):  # ours
        tokens, special = tokenizer.backend.get_vocab(), set(tokenizer.special.special_ids)
        mask_id, pad_id, pads_left = tokenizer.special.mask_id, tokenizer.special.pad_id, tokenizer.pads_left
    elif hasattr(tokenizer, "all_special_ids"):  # transformers
        tokens, special = tokenizer.get_vocab(), set(tokenizer.all_special_ids)
        special |= {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
        mask_id, pad_id, pads_left = tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.padding_side == "left"
        pad_type = tokenizer.pad_token_type_id
    else:
        tokens = tokenizer.get_vocab()
        special = special_ids_of(tokenizer, tokens)
        mask_id, pad_id = id_by_spelling("mask", tokens), id_by_spelling("pad", tokens)
        if tokenizer.padding is not None:
            pad_id, pads_left = tokenizer.padding["pad_id"], tokenizer.padding["direction"] == "left"
            pad_type = tokenizer.padding["pad_type_id"]
    if not tokens:
        raise ValueError("this tokenizer has an empty vocabulary")
    if mask_id is None:
        raise ValueError("this tokenizer has no mask token; masked-language modelling needs one such as [MASK]")
    unused = {index for token, index in tokens.items() if _UNUSED.fullmatch(token)}
    special |= added
    ordinary = np.array(sorted(set(tokens.values()) - special - unused), np.int64)
    maskable_V = _maskable(mask_id, max(tokens.values()) + 1, special, ordinary)
    return Vocabulary(mask_id, maskable_V, ordinary, pad_id, pads_left, pad_type, tokens)


def vocabulary_from_ids(mask_id: int, vocab_size: int, special_ids: Iterable[int], pad_id: int | None) -> Vocabulary:
    """The vocabulary that plain numbers describe; [MASK] and padding count as special."""
    special = _integers_of(special_ids) | {mask_id} | ({pad_id} if pad_id is not None else set())
    ordinary = np.array([index for index in range(vocab_size) if index not in special], np.int64)
    return Vocabulary(mask_id, _maskable(mask_id, vocab_size, special, ordinary), ordinary, pad_id)


def look_up(table_V: np.ndarray, ids_T: np.ndarray) -> np.ndarray:
    """The values of a table over the vocabulary for ids from 0 on."""
    try:
        return table_V[ids_T]
    except IndexError:
        raise ValueError(
            f"a token id is outside the vocabulary of {len(table_V)}: the ids run from {ids_T.min()} to {ids_T.max()}"
        ) from None


def id_by_spelling(role: str, tokens: Mapping[str, int]) -> int | None:
    """The id of a special token, found by the ways it is usually spelled."""
    return next((tokens[name] for name in SPELLINGS[role] if name in tokens), None)


def special_ids_of(backend: Any, tokens: Mapping[str, int]) -> set[int]:
    """All ids that a `tokenizers.Tokenizer` calls special, and those that are spelled like special ones."""
    special = {index for index, token in backend.get_added_tokens_decoder().items() if token.special}
    return special | {tokens[name] for names in SPELLINGS.values() for name in names if name in tokens}


def _integers_of(special_ids: Iterable[int]) -> set[int]:
    try:
        return set(map(operator.index, special_ids))
    except TypeError:
        raise ValueError(f"special_ids must be integers in a list or another sequence, got {special_ids!r}") from None


def _maskable(mask_id: int, vocab_size: int, special_ids: set[int], ordinary: np.ndarray) -> np.ndarray:
    outside = [index for index in special_ids if not 0 <= index < vocab_size]
    if outside:
        raise ValueError(f"special id {outside[0]} is outside a vocabulary of {vocab_size}")
    if not len(ordinary):
        raise ValueError("the vocabulary has no ordinary token to draw a replacement from")
    maskable_V = np.ones(vocab_size, bool)
    maskable_V[[*special_ids, mask_id]] = False
    return maskable_V
