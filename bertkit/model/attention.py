"""Queries, keys and values of packed sequences enter, context vectors leave; sequence borders are never crossed.

This file alone decides which kernel runs. On CUDA in half precision a variable-length kernel takes the whole
pack. Elsewhere each run of equally long neighbours is one kernel call on a view of the pack: no padding is
computed and nothing is copied to make it rectangular. A local window cuts a sequence into pieces, each with only
the keys it can reach.
"""

# T tokens in the pack, S sequences, H heads, E channels per head, N sequences in a run, Q queries, K keys

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


def attention(
    qkv_T3HE: Tensor, cu_seqlens: Tensor, max_seqlen: int, window: int | None = None, dropout: float = 0.0
) -> Tensor:
    """Scaled dot-product attention inside each sequence, (T, H, E).

    A `window` lets a token see that many neighbours to either side. `dropout` falls on the attention weights and
    draws from torch's global generator.
    """
    if window is not None and window >= max_seqlen - 1:
        window = None
    if qkv_T3HE.is_cuda and qkv_T3HE.dtype in (torch.float16, torch.bfloat16) and dropout == 0:
        return _varlen(qkv_T3HE, cu_seqlens, max_seqlen, window)
    seed = torch.randint(2**62, ()) if dropout else torch.zeros((), dtype=torch.int64)
    reach = -1 if window is None else window
    return torch.ops.bertkit.packed_attention(qkv_T3HE, cu_seqlens, reach, dropout, seed)[0]


def attention_weights(qkv_T3HE: Tensor, cu_seqlens: Tensor, window: int | None = None) -> list[Tensor]:
    """The softmax itself, for analysis: one (H, length, length) tensor a sequence."""
    borders = cu_seqlens.tolist()
    weights = []
    for start, end in itertools.pairwise(borders):
        query, key, _ = qkv_T3HE[start:end].permute(1, 2, 0, 3)
        band = None if window is None else _band(end - start, end - start, 0, window, query)
        weights.append(_softmax(query, key, band))
    return weights


def _varlen(qkv_T3HE: Tensor, cu_seqlens: Tensor, max_seqlen: int, window: int | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = qkv_T3HE.unbind(1)
    reach = (-1, -1) if window is None else (window, window)
    context_THE = varlen_attn(query, key, value, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, window_size=reach)
    assert isinstance(context_THE, Tensor)
    return context_THE


@torch.library.custom_op("bertkit::packed_attention", mutates_args=())
def _packed_attention(
    qkv_T3HE: Tensor, cu_seqlens: Tensor, reach: int, dropout: float, seed: Tensor
) -> tuple[Tensor, Tensor]:
    """One opaque operator, so that torch.compile does not look into the loop over sequences.

    The second result is the logarithm of each softmax's denominator, which the backward pass needs.
    """
    num_tokens, _, num_heads, head_size = qkv_T3HE.shape
    context_THE = qkv_T3HE.new_empty(num_tokens, num_heads, head_size)
    denominator_TH = qkv_T3HE.new_empty(num_tokens, num_heads, dtype=_precise(qkv_T3HE))
    generator = _generator(qkv_T3HE, dropout, seed)
    for piece in _pieces(cu_seqlens.tolist(), reach):
        query, key, value = piece.views(qkv_T3HE)
        band = piece.band(query)
        if _has_fused_kernel(query, dropout):
            context, denominator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                query, key, value, attn_mask=band
            )
            piece.queries_of(denominator_TH).copy_(denominator.transpose(1, 2))
        else:
            kept = _kept(_softmax(query, key, band), dropout, generator)
            context = kept @ value
        piece.queries_of(context_THE).copy_(context.transpose(1, 2))
    return context_THE, denominator_TH


@torch.library.custom_op("bertkit::packed_attention_backward", mutates_args=())
def _packed_attention_backward(
    grad_THE: Tensor,
    qkv_T3HE: Tensor,
    context_THE: Tensor,
    denominator_TH: Tensor,
    cu_seqlens: Tensor,
    reach: int,
    dropout: float,
    seed: Tensor,
) -> Tensor:
    # With a window the pieces of a sequence share keys, so their gradients are summed.
    grad_T3HE = torch.empty_like(qkv_T3HE) if reach < 0 else torch.zeros_like(qkv_T3HE)
    generator = _generator(qkv_T3HE, dropout, seed)
    for piece in _pieces(cu_seqlens.tolist(), reach):
        query, key, value = piece.views(qkv_T3HE)
        band = piece.band(query)
        grad = piece.queries_of(grad_THE).transpose(1, 2)
        if _has_fused_kernel(query, dropout):
            grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad,
                query,
                key,
                value,
                piece.queries_of(context_THE).transpose(1, 2),
                piece.queries_of(denominator_TH).transpose(1, 2),
                0.0,
                False,
                attn_mask=band,
            )
        else:
            grads = _explicit_backward(grad, query, key, value, band, dropout, generator)
        for target, values in zip(piece.views(grad_T3HE), grads, strict=True):
            if reach < 0:
                target.copy_(values)
            else:
                target.add_(values)
    return grad_T3HE


@_packed_attention.register_fake
def _(qkv_T3HE, cu_seqlens, reach, dropout, seed):
    num_tokens, _, num_heads, head_size = qkv_T3HE.shape
    return (
        qkv_T3HE.new_empty(num_tokens, num_heads, head_size),
        qkv_T3HE.new_empty(num_tokens, num_heads, dtype=_precise(qkv_T3HE)),
    )


@_packed_attention_backward.register_fake
def _(grad_THE, qkv_T3HE, context_THE, denominator_TH, cu_seqlens, reach, dropout, seed):
    return torch.empty_like(qkv_T3HE)


def _save_for_backward(ctx, inputs, output):
    qkv_T3HE, cu_seqlens, ctx.reach, ctx.dropout, seed = inputs
    ctx.save_for_backward(qkv_T3HE, *output, cu_seqlens, seed)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, grad_THE, _):
    qkv_T3HE, context_THE, denominator_TH, cu_seqlens, seed = ctx.saved_tensors
    grad_T3HE = torch.ops.bertkit.packed_attention_backward(
        grad_THE.contiguous(), qkv_T3HE, context_THE, denominator_TH, cu_seqlens, ctx.reach, ctx.dropout, seed
    )
    return grad_T3HE, None, None, None, None


_packed_attention.register_autograd(_backward, setup_context=_save_for_backward)


class _Piece(NamedTuple):
    """Neighbouring sequences of one length, and which of their queries see which of their keys."""

    tokens: slice
    """The run of sequences in the pack."""
    length: int
    queries: slice
    keys: slice
    window: int | None
    """None where every query sees every key."""

    def views(self, qkv_T3HE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value as (N, H, Q or K, E), without copying."""
        rows = qkv_T3HE[self.tokens].unflatten(0, (-1, self.length)).permute(2, 0, 3, 1, 4)
        return rows[0][:, :, self.queries], rows[1][:, :, self.keys], rows[2][:, :, self.keys]

    def queries_of(self, values_T: Tensor) -> Tensor:
        return values_T[self.tokens].unflatten(0, (-1, self.length))[:, self.queries]

    def band(self, like: Tensor) -> Tensor | None:
        if self.window is None:
            return None
        num_queries, num_keys = self.queries.stop - self.queries.start, self.keys.stop - self.keys.start
        return _band(num_queries, num_keys, self.queries.start - self.keys.start, self.window, like)


def _pieces(borders: list[int], reach: int) -> Iterator[_Piece]:
    for start, end, length in _runs(borders):
        tokens = slice(start, end)
        if reach < 0 or reach >= length - 1:
            everything = slice(0, length)
            yield _Piece(tokens, length, everything, everything, None)
            continue
        # Short pieces waste fewer keys but cost more calls; the window itself is a good measure.
        step = max(64, reach)
        for first in range(0, length, step):
            last = min(first + step, length)
            keys = slice(max(0, first - reach), min(length, last + reach))
            yield _Piece(tokens, length, slice(first, last), keys, reach)


def _runs(borders: list[int]) -> Iterator[tuple[int, int, int]]:
    """Start, end and length of each run of equally long neighbours; empty sequences are left out."""
    run_start, run_length = 0, 0
    for start, end in itertools.pairwise(borders):
        if end - start != run_length:
            if start > run_start:
                yield run_start, start, run_length
            run_start, run_length = start, end - start
    if borders[-1] > run_start:
        yield run_start, borders[-1], run_length


def _has_fused_kernel(query: Tensor, dropout: float) -> bool:
    return query.device.type == "cpu" and dropout == 0


def _band(num_queries: int, num_keys: int, first_query: int, window: int, like: Tensor) -> Tensor:
    """0 where a query may look, -inf elsewhere; query i stands at key `first_query + i`."""
    query_Q1 = torch.arange(first_query, first_query + num_queries, device=like.device)[:, None]
    key_K = torch.arange(num_keys, device=like.device)
    far_QK = (query_Q1 - key_K).abs() > window
    return torch.zeros(num_queries, num_keys, dtype=like.dtype, device=like.device).masked_fill_(far_QK, -math.inf)


def _softmax(query: Tensor, key: Tensor, band: Tensor | None) -> Tensor:
    scores = (query @ key.transpose(-1, -2)).to(_precise(query)) * query.shape[-1] ** -0.5
    return torch.softmax(scores if band is None else scores + band, dim=-1).to(query.dtype)


def _precise(values: Tensor) -> torch.dtype:
    """In which a softmax is summed: at least float32."""
    return torch.promote_types(values.dtype, torch.float32)


def _generator(like: Tensor, dropout: float, seed: Tensor) -> torch.Generator | None:
    """The same stream in both passes, so that the dropped weights are never stored."""
    return torch.Generator(like.device).manual_seed(int(seed)) if dropout else None


def _kept(weights: Tensor, dropout: float, generator: torch.Generator | None) -> Tensor:
    if generator is None:
        return weights
    drawn = torch.rand(weights.shape, generator=generator, device=weights.device)
    return weights * (drawn >= dropout) / (1 - dropout)


def _explicit_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    band: Tensor | None,
    dropout: float,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Recompute the weights and differentiate by hand: nothing of size length × length outlives a piece."""
    weights = _softmax(query, key, band)
    keep = _kept(torch.ones_like(weights), dropout, generator)
    grad_value = (weights * keep).transpose(-1, -2) @ grad
    grad_weights = (grad @ value.transpose(-1, -2)) * keep
    grad_scores = weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True))
    grad_scores = grad_scores * query.shape[-1] ** -0.5
    return grad_scores @ key, grad_scores.transpose(-1, -2) @ query, grad_value
