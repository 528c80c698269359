"""Attention among short packed sequences, with its products in bf16: a few batched products for a whole pack.

Neighbouring sequences stand side by side in blocks as long as the longest of them, and a mask keeps them apart. Rows of
a corpus, which hold pieces of documents, fill their blocks almost completely.
"""

# T tokens in the pack, M tokens asked for, N blocks, H heads, Q queries and K keys of a block, E channels per head

import functools
import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bertkit.model.attention_tiles import SideBySide, as_band, hidden
from bertkit.model.products import multiplies_in_half

LONGEST = 256
"""Of longer sequences the scores, which are written out, take too much memory."""

_QUERIES = 16
"""The queries of a block, where some tokens are asked for, are filled up to a multiple of this: torch prepares a kernel
for each new shape."""


def takes_half(packed: Tensor, cu_seqlens: Tensor) -> bool:
    """Whether `half_attention` is asked for and is made for such a pack."""
    return multiplies_in_half(packed) and len(packed) > 0 and int(cu_seqlens.diff().max()) <= LONGEST


def half_attention(
    query: Tensor | None, packed: Tensor, cu_seqlens: Tensor, index_M: Tensor | None, window: int | None
) -> Tensor:
    """Context vectors, (T, H, E), or (M, H, E). `packed` holds queries, keys and values of every token, or, where
    `query` holds those of the tokens at `index_M`, only keys and values."""
    places = None if index_M is None else tuple(index_M.tolist())
    blocks = _blocks(tuple(cu_seqlens.tolist()), places, -1 if window is None else window)
    return _HalfAttention.apply(query, packed, blocks)


class Blocks(NamedTuple):
    num_blocks: int
    queries: SideBySide
    keys: SideBySide
    band_N1QK: Tensor | None
    """-inf where a query may not look; None where each sees its whole block."""

    def cut(self, rows: Tensor, places: SideBySide) -> Tensor:
        """(N, H, Q or K, E) in bf16 of rows (T, H, E)."""
        blocks = places.copied(rows).unflatten(0, (self.num_blocks, -1)).transpose(1, 2)
        return torch.empty(blocks.shape, dtype=torch.bfloat16).copy_(blocks)

    def join(self, blocks: Tensor, places: SideBySide, rows: Tensor) -> Tensor:
        """Write blocks into rows (T, H, E), and return these."""
        if len(places.filling):
            return rows.copy_(places.end_to_end(blocks.transpose(1, 2).flatten(0, 1)))
        rows.unflatten(0, (self.num_blocks, -1)).copy_(blocks.transpose(1, 2))
        return rows


# The same for all layers that see as far, so it is remembered from one to the next.
@functools.lru_cache(maxsize=4)
def _blocks(borders: tuple[int, ...], places: tuple[int, ...] | None, reach: int) -> Blocks:
    lengths = [end - start for start, end in itertools.pairwise(borders)]
    longest, starts, end = max(lengths), [], 0
    for length in lengths:
        # A sequence that does not fit into what is left of a block begins the next one.
        start = end if end % longest + length <= longest else -(-end // longest) * longest
        starts.append(start)
        end = start + length
    num_blocks = -(-end // longest)
    sequence_T = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    place_T = torch.arange(borders[-1]) + (torch.tensor(starts) - torch.tensor(borders[:-1]))[sequence_T]
    keys = SideBySide.at(place_T, num_blocks * longest)
    if places is None:
        asked_M, queries = torch.arange(borders[-1]), keys
    else:
        asked_M = torch.tensor(places)
        block_M = place_T[asked_M] // longest
        counts_N = block_M.bincount(minlength=num_blocks)
        num_queries = max(1, -(-int(counts_N.max()) // _QUERIES)) * _QUERIES
        order_M = torch.arange(len(places)) - (counts_N.cumsum(0) - counts_N)[block_M]
        queries = SideBySide.at(block_M * num_queries + order_M, num_blocks * num_queries)
    sequence_NQ, sequence_NK = (
        torch.full(side.row.shape, -1).index_copy_(0, side.real, sequence).view(num_blocks, -1)
        for side, sequence in ((queries, sequence_T[asked_M]), (keys, sequence_T))
    )
    place_NQ = (place_T % longest)[asked_M][queries.row].view(num_blocks, -1)
    hidden_NQK = hidden(place_NQ, torch.arange(longest), reach, -1) | (sequence_NQ[:, :, None] != sequence_NK[:, None])
    # A query that only fills up sees everything: a softmax over nothing would be NaN.
    hidden_NQK &= sequence_NQ[:, :, None] >= 0
    band_N1QK = as_band(hidden_NQK, torch.bfloat16)[:, None] if hidden_NQK.any() else None
    return Blocks(num_blocks, queries, keys, band_N1QK)


class _HalfAttention(torch.autograd.Function):
    """Scores, weights and their gradients are held in bf16; a softmax computes in float32 inside."""

    @staticmethod
    def forward(ctx: Any, query: Tensor | None, packed: Tensor, blocks: Blocks) -> Tensor:
        queries = packed[:, 0] if query is None else query
        ctx.scale = queries.shape[-1] ** -0.5
        q = blocks.cut(queries * ctx.scale, blocks.queries)
        k, v = (blocks.cut(packed[:, part], blocks.keys) for part in (-2, -1))
        scores = q @ k.mT
        if blocks.band_N1QK is not None:
            scores += blocks.band_N1QK
        weights = torch.softmax(scores, dim=-1)
        ctx.save_for_backward(q, k, v, weights)
        ctx.blocks, ctx.has_query, ctx.packed_shape = blocks, query is not None, packed.shape
        return blocks.join(weights @ v, blocks.queries, queries.new_empty(queries.shape))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        q, k, v, weights = ctx.saved_tensors
        blocks = ctx.blocks
        g = blocks.cut(grad, blocks.queries)
        grad_scores = torch._softmax_backward_data(g @ v.mT, weights, -1, torch.bfloat16)
        grad_packed = grad.new_empty(ctx.packed_shape)
        grad_query = grad.new_empty(grad.shape) if ctx.has_query else grad_packed[:, 0]
        blocks.join(grad_scores @ k, blocks.queries, grad_query).mul_(ctx.scale)
        blocks.join(grad_scores.mT @ q, blocks.keys, grad_packed[:, -2])
        blocks.join(weights.mT @ g, blocks.keys, grad_packed[:, -1])
        return grad_query if ctx.has_query else None, grad_packed, None
