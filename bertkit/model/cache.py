"""Keys and values of earlier tokens, kept, so that a sequence can grow by a token without being computed again.

A batch may carry a `Cache`. Its first pass is an ordinary one, after which the cache holds the keys and values of all
its tokens; every further batch holds one new token of each sequence, which sees all that the cache has of it.
"""

# T tokens in the pack, S sequences, P places of the longest one, H heads, E channels per head, M tokens asked for

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.model.attention import attention, attention_at
from bertkit.model.packing import Packed, prefixes_of


class Cache:
    """What a model keeps of sequences that grow."""

    def __init__(self, lengths_S: Tensor, room: int):
        """For sequences of these lengths, each of which may grow by `room` tokens."""
        self.lengths_S = lengths_S
        """Tokens of each sequence that are kept; whoever feeds a token to each of them counts it with `grown`."""
        self._num_places = int(lengths_S.max()) + room
        self._kept: dict[nn.Module, Tensor] = {}

    def grown(self) -> None:
        """Count the token by which every sequence has just grown."""
        self.lengths_S = self.lengths_S + 1

    def select(self, index: Tensor) -> None:
        """Continue with these sequences, some perhaps several times, others not at all."""
        self.lengths_S = self.lengths_S[index]
        self._kept = {layer: kept[index] for layer, kept in self._kept.items()}

    def holds(self, layer: nn.Module) -> bool:
        return layer in self._kept

    def fill(self, layer: nn.Module, key_value_T2HE: Tensor) -> None:
        """Keep the keys and values of whole sequences."""
        lengths_S = self.lengths_S
        row_T = torch.arange(len(lengths_S), device=lengths_S.device).repeat_interleave(lengths_S)
        place_T = torch.arange(len(row_T), device=lengths_S.device) - (lengths_S.cumsum(0) - lengths_S)[row_T]
        kept = key_value_T2HE.new_zeros(len(lengths_S), self._num_places, *key_value_T2HE.shape[1:])
        kept[row_T, place_T] = key_value_T2HE
        self._kept[layer] = kept

    def extend(self, layer: nn.Module, query_SHE: Tensor, key_value_S2HE: Tensor, window: int | None) -> Tensor:
        """Keep one further token of each sequence; what it attends to, (S, H, E)."""
        kept = self._kept[layer]
        kept[torch.arange(len(kept), device=kept.device), self.lengths_S] = key_value_S2HE
        key, value = kept[:, : int(self.lengths_S.max()) + 1].permute(2, 0, 3, 1, 4)
        back_SP = self.lengths_S[:, None] - torch.arange(key.shape[2], device=kept.device)
        seen_SP = back_SP >= 0 if window is None else (back_SP >= 0) & (back_SP <= window)
        return F.scaled_dot_product_attention(query_SHE[:, :, None], key, value, seen_SP[:, None, None]).squeeze(2)


def attend(layer: nn.Module, batch: Packed, qkv_T3HE: Tensor, window: int | None, dropout: float) -> Tensor:
    """Attention of all tokens of a batch, (T, H, E), to what its cache holds too if it has one."""
    cache = _cache_of(batch)
    if cache is not None and cache.holds(layer):
        return cache.extend(layer, qkv_T3HE[:, 0], qkv_T3HE[:, 1:], window)
    if cache is not None:
        cache.fill(layer, qkv_T3HE[:, 1:])
    return attention(qkv_T3HE, batch.cu_seqlens, batch.max_seqlen, window, dropout, prefixes_of(batch))


def attend_at(
    layer: nn.Module,
    batch: Packed,
    at_M: Tensor,
    query_MHE: Tensor,
    key_value_T2HE: Tensor,
    window: int | None,
    dropout: float,
) -> Tensor:
    """The same for the tokens at ascending places, (M, H, E); of sequences that grow, for every new token."""
    cache = _cache_of(batch)
    if cache is not None and cache.holds(layer):
        assert len(at_M) == len(key_value_T2HE)
        return cache.extend(layer, query_MHE, key_value_T2HE, window)
    if cache is not None:
        cache.fill(layer, key_value_T2HE)
    sight: tuple[Any, ...] = (batch.cu_seqlens, batch.max_seqlen, window, dropout, prefixes_of(batch))
    return attention_at(at_M, query_MHE, key_value_T2HE, *sight)


def _cache_of(batch: Packed) -> Cache | None:
    return getattr(batch, "cache", None)
