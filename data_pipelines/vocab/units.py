"""Tokenizers whose tokens are single characters or bytes: training only collects them."""

from collections.abc import Iterable, Sequence
from typing import Literal

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from data_pipelines.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer, framed

UnitKind = Literal["character", "byte"]


def unit_tokenizer(kind: UnitKind, texts: Iterable[str], tokens: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer of the characters in the texts, or of all bytes; `tokens` are special ones of its own, which no text
    is ever read as."""
    units = sorted(pre_tokenizers.ByteLevel.alphabet() if kind == "byte" else set().union(*texts))
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys([*SPECIAL_TOKENS, *units]))}
    # Without merges BPE splits a text into its characters.
    backend = Backend(models.BPE(vocab=vocabulary, merges=[], unk_token="[UNK]"))
    if kind == "byte":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
    else:
        backend.decoder = decoders.Fuse()
    backend.add_special_tokens([*SPECIAL_TOKENS, *(AddedToken(token, normalized=False) for token in tokens)])
    return framed(backend)


def has_units(tokenizer: Tokenizer, kind: UnitKind) -> bool:
    """Whether the tokenizer reads text as characters, or as bytes."""
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=False)
    if any(len(token) > 1 for token in vocabulary if token not in SPECIAL_TOKENS):
        return False
    return (kind == "byte") == (set(pre_tokenizers.ByteLevel.alphabet()) <= vocabulary.keys())
