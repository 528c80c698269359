"""Queries, keys and values of packed sequences enter, context vectors leave; sequence borders are never crossed.

What a token sees is an argument: its whole sequence, a window around it, or, with prefixes, what came before it and the
first tokens of its sequence. No prefix is causal attention; a source whose target follows it is a prefix.

This file alone decides which kernel runs. On CUDA a kernel takes the whole pack: flash attention in half precision on
GPUs that have it, memory-efficient attention in float32 and on older GPUs where no window is asked for. Elsewhere a
kernel is called on views of the pack, tile by tile: no padding is computed, nothing is copied. Where
no fused kernel fits the softmax is written out, in memory that grows with the square of a length: on CPUs with dropout
on the attention weights, and on CUDA with a window in float32. On CUDA what is slower than it could be is told once.
On CPUs in half precision short sequences have a kernel of ours; all others are computed in float32.
"""

# T tokens in the pack, S sequences, H heads, E channels per head, M tokens asked for

import functools
import itertools
import logging
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model.attention_tiles import as_band, cut, hidden, needed
from bertkit.model.products.half_attention import half_attention, takes_half

log = logging.getLogger("bertkit")

# With more channels a head, some GPUs cannot differentiate flash attention.
_MOST_CHANNELS = 192


def attention(
    qkv_T3HE: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    window: int | None = None,
    dropout: float = 0.0,
    prefixes_S: Tensor | None = None,
) -> Tensor:
    """Scaled dot-product attention inside each sequence, (T, H, E).

    A `window` lets a token see that many neighbours to either side. `prefixes_S` hide from a token what comes after it
    in its sequence, but for that many tokens at the sequence's start. `dropout` falls on the attention weights and
    draws from torch's global generator.
    """
    window = needed(window, max_seqlen)
    kernel = _varlen_kernel(qkv_T3HE, window)
    if kernel is not None:
        return _whole_pack(kernel, qkv_T3HE.unbind(1), cu_seqlens, max_seqlen, window, dropout, prefixes_S)
    return _packed(None, qkv_T3HE, cu_seqlens, None, window, dropout, prefixes_S)


def attention_at(
    index_M: Tensor,
    query_MHE: Tensor,
    key_value_T2HE: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    window: int | None = None,
    dropout: float = 0.0,
    prefixes_S: Tensor | None = None,
) -> Tensor:
    """The same for some tokens only, (M, H, E): those at the ascending places `index_M` of the pack."""
    window = needed(window, max_seqlen)
    kernel = _varlen_kernel(query_MHE, window)
    if kernel is not None:
        key, value = key_value_T2HE.unbind(1)
        if window is not None or prefixes_S is not None:
            # The kernels take queries for neighbours, so each stands in its place, among others left empty.
            query_THE = torch.zeros_like(key).index_copy(0, index_M, query_MHE)
            parts = (query_THE, key, value)
            context_THE = _whole_pack(kernel, parts, cu_seqlens, max_seqlen, window, dropout, prefixes_S)
            return context_THE.index_select(0, index_M)
        cu_queries = torch.searchsorted(index_M, cu_seqlens.long()).int()
        return kernel(query_MHE, key, value, cu_queries, cu_seqlens, max_seqlen, (-1, -1), dropout)
    return _packed(query_MHE, key_value_T2HE, cu_seqlens, index_M, window, dropout, prefixes_S)


def attention_weights(
    qkv_T3HE: Tensor, cu_seqlens: Tensor, window: int | None = None, prefixes_S: Tensor | None = None
) -> list[Tensor]:
    """The softmax itself, for analysis: one (H, length, length) tensor a sequence."""
    weights = []
    for sequence, (start, end) in enumerate(itertools.pairwise(cu_seqlens.tolist())):
        query, key, _ = qkv_T3HE[start:end].permute(1, 2, 0, 3)
        place = torch.arange(end - start, device=query.device)
        prefix = -1 if prefixes_S is None else int(prefixes_S[sequence])
        hidden_QK = hidden(place, place, -1 if window is None else window, prefix)
        weights.append(_softmax(query, key, as_band(hidden_QK, query.dtype)))
    return weights


def _varlen_kernel(values: Tensor, window: int | None) -> Callable[..., Tensor] | None:
    """The fused kernel that takes a whole pack of such values; None where torch has none."""
    if not values.is_cuda:
        return None
    wide = not values.shape[-1] <= _MOST_CHANNELS  # a size that a compiler under FSDP does not know as a number
    return _KERNELS[_name_of_kernel(values.dtype, wide, window is not None, values.device.index)]


@torch.compiler.assume_constant_result
def _name_of_kernel(dtype: torch.dtype, wide: bool, windowed: bool, device: int | None) -> str:
    half, modern = dtype in (torch.float16, torch.bfloat16), _capability(device) >= (8, 0)
    if half and not wide and modern:
        return "flash"
    if windowed or dtype == torch.float64:
        _tell_slow(dtype, "no fused kernel")
        return "none"
    if half:
        _tell_slow(dtype, "the memory-efficient kernel")
    return "efficient" if modern or dtype != torch.bfloat16 else "efficient in float32"


@functools.cache
def _capability(device: int | None) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


@functools.cache
def _tell_slow(dtype: torch.dtype, kernel: str) -> None:
    log.warning(
        f"attention in {str(dtype).removeprefix('torch.')} takes {kernel}, slower than flash attention, which needs "
        f"train.precision=bf16, a GPU of compute capability 8.0 or more, and up to {_MOST_CHANNELS} channels a head"
    )


def _whole_pack(
    kernel: Callable[..., Tensor],
    query_key_value: Sequence[Tensor],
    cu_seqlens: Tensor,
    max_seqlen: int,
    window: int | None,
    dropout: float,
    prefixes_S: Tensor | None,
) -> Tensor:
    """No kernel knows prefixes: one call lets tokens see what came before them, another one the tokens of a prefix each
    other, and each token takes what is right for it."""
    reach = -1 if window is None else window

    def called(borders: Tensor, right: int) -> Tensor:
        return kernel(*query_key_value, borders, borders, max_seqlen, (reach, right), dropout)

    if prefixes_S is None:
        return called(cu_seqlens, reach)
    ends_S = cu_seqlens[:-1] + torch.minimum(prefixes_S, cu_seqlens.diff())
    borders = torch.cat([torch.stack([cu_seqlens[:-1], ends_S], dim=1).flatten(), cu_seqlens[-1:]]).int()
    place_T = torch.arange(len(query_key_value[0]), dtype=torch.int32, device=borders.device)
    in_prefix_T = torch.bucketize(place_T, borders[1:], right=True) % 2 == 0
    return torch.where(in_prefix_T[:, None, None], called(borders, reach), called(cu_seqlens, 0))


# The two kernels of torch that take borders. Torch's own function for them, varlen_attn, knows neither dropout nor
# float32; both operators are what torch itself calls for nested tensors, and it differentiates them. `reach` is how far
# a token sees to the left and to the right, -1 to the end.


def _flash(query, key, value, cu_queries, cu_keys, max_seqlen, reach, dropout) -> Tensor:
    context = torch.ops.aten._flash_attention_forward(
        *_aligned(query, key, value),
        *(cu_queries, cu_keys, max_seqlen, max_seqlen, dropout, False, False),
        window_size_left=reach[0],
        window_size_right=reach[1],
    )[0]
    return context[..., : query.shape[-1]]


def _efficient(query, key, value, cu_queries, cu_keys, max_seqlen, reach, dropout) -> Tensor:
    assert reach in ((-1, -1), (-1, 0))
    from_top_left = int(reach[1] == 0)
    context = torch.ops.aten._efficient_attention_forward(
        *_aligned(query[None], key[None], value[None]),
        *(None, cu_queries, cu_keys, max_seqlen, max_seqlen, dropout, from_top_left),
        compute_log_sumexp=True,
    )[0]
    return context[0, ..., : query.shape[-1]]


def _efficient_in_float32(query, key, value, *rest) -> Tensor:
    """Of bf16, for which older GPUs have no kernel."""
    return _efficient(query.float(), key.float(), value.float(), *rest).to(query.dtype)


_KERNELS = {"flash": _flash, "efficient": _efficient, "efficient in float32": _efficient_in_float32, "none": None}


def _aligned(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both kernels read 8 channels at once: a head of another size is filled up with zeros, which add nothing to a
    score; that it is divided by the root of more channels is made good."""
    head_size, missing = query.shape[-1], -query.shape[-1] % 8
    if missing:
        query = query * (1 + missing / head_size) ** 0.5
        query, key, value = (F.pad(part, (0, missing)) for part in (query, key, value))
    return query, key, value


def _packed(
    query: Tensor | None,
    packed: Tensor,
    cu_seqlens: Tensor,
    index_M: Tensor | None,
    window: int | None,
    dropout: float,
    prefixes_S: Tensor | None,
) -> Tensor:
    if dropout == 0 and prefixes_S is None and takes_half(packed, cu_seqlens):
        return half_attention(query, packed, cu_seqlens, index_M, window)
    seed, reach = torch.randint(2**62, ()) if dropout else torch.tensor(0), -1 if window is None else window
    return torch.ops.bertkit.packed_attention(query, packed, cu_seqlens, index_M, reach, dropout, seed, prefixes_S)[0]


@torch.library.custom_op("bertkit::packed_attention", mutates_args=())
def _packed_attention(
    query: Tensor | None,
    packed: Tensor,
    cu_seqlens: Tensor,
    index_M: Tensor | None,
    reach: int,
    dropout: float,
    seed: Tensor,
    prefixes_S: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """One opaque operator, so that torch.compile does not look into the loop over sequences.

    `packed` holds queries, keys and values of every token, or, where `query` holds those of the tokens at `index_M`,
    only keys and values. The second result is the logarithm of each softmax's denominator, for the backward pass.
    """
    queries = packed[:, 0] if query is None else query
    context = queries.new_empty(queries.shape)
    denominator = queries.new_empty(queries.shape[:2], dtype=_precise(queries))
    generator = _generator(packed, dropout, seed)
    for tile in cut(packed, cu_seqlens, index_M, reach, prefixes_S):
        q, k, v = tile.queries_of(queries), tile.keys_of(packed[:, -2]), tile.keys_of(packed[:, -1])
        if _has_fused_kernel(q, dropout):
            part, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=tile.band(q))
            tile.put_queries(denominator, log_sum)
        else:
            part = _kept(_softmax(q, k, tile.band(q)), dropout, generator) @ v
        tile.put_queries(context, part)
    return context, denominator


@torch.library.custom_op("bertkit::packed_attention_backward", mutates_args=())
def _packed_attention_backward(
    grad: Tensor,
    query: Tensor | None,
    packed: Tensor,
    context: Tensor,
    denominator: Tensor,
    cu_seqlens: Tensor,
    index_M: Tensor | None,
    reach: int,
    dropout: float,
    seed: Tensor,
    prefixes_S: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Gradients by `query` (empty where there was none) and by `packed`."""
    # Tiles in which something is hidden share keys; where only some queries exist, some keys may have none.
    shared = reach >= 0 or prefixes_S is not None
    grad_packed = torch.zeros_like(packed) if shared or query is not None else torch.empty_like(packed)
    grad_query = packed.new_empty(0) if query is None else torch.empty_like(query)
    queries, grad_queries = (packed[:, 0], grad_packed[:, 0]) if query is None else (query, grad_query)
    generator = _generator(packed, dropout, seed)
    for tile in cut(packed, cu_seqlens, index_M, reach, prefixes_S):
        q, k, v = tile.queries_of(queries), tile.keys_of(packed[:, -2]), tile.keys_of(packed[:, -1])
        g, band = tile.queries_of(grad), tile.band(q)
        if _has_fused_kernel(q, dropout):
            grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                g, q, k, v, tile.queries_of(context), tile.queries_of(denominator), 0.0, False, attn_mask=band
            )
        else:
            grads = _explicit_backward(g, q, k, v, band, dropout, generator)
        tile.put_queries(grad_queries, grads[0])
        put_keys = tile.add_keys if shared else tile.put_keys
        put_keys(grad_packed[:, -2], grads[1])
        put_keys(grad_packed[:, -1], grads[2])
    return grad_query, grad_packed


@_packed_attention.register_fake
def _(query, packed, cu_seqlens, index_M, reach, dropout, seed, prefixes_S):
    queries = packed[:, 0] if query is None else query
    return queries.new_empty(queries.shape), queries.new_empty(queries.shape[:2], dtype=_precise(queries))


@_packed_attention_backward.register_fake
def _(grad, query, packed, context, denominator, cu_seqlens, index_M, reach, dropout, seed, prefixes_S):
    return packed.new_empty(0) if query is None else torch.empty_like(query), torch.empty_like(packed)


def _save_for_backward(ctx, inputs, output):
    query, packed, cu_seqlens, index_M, ctx.reach, ctx.dropout, seed, prefixes_S = inputs
    ctx.save_for_backward(query, packed, *output, cu_seqlens, index_M, seed, prefixes_S)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, grad, _):
    *values, cu_seqlens, index_M, seed, prefixes_S = ctx.saved_tensors
    sight = (cu_seqlens, index_M, ctx.reach, ctx.dropout, seed, prefixes_S)
    grad_query, grad_packed = torch.ops.bertkit.packed_attention_backward(grad.contiguous(), *values, *sight)
    return None if values[0] is None else grad_query, grad_packed, *(None,) * len(sight)


_packed_attention.register_autograd(_backward, setup_context=_save_for_backward)


def _has_fused_kernel(query: Tensor, dropout: float) -> bool:
    return query.device.type == "cpu" and dropout == 0


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
    """Recompute the weights and differentiate by hand: nothing of size length × length outlives a tile."""
    weights = _softmax(query, key, band)
    keep = _kept(torch.ones_like(weights), dropout, generator)
    grad_value = (weights * keep).transpose(-1, -2) @ grad
    grad_weights = (grad @ value.transpose(-1, -2)) * keep
    grad_scores = weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True)) * query.shape[-1] ** -0.5
    return grad_scores @ key, grad_scores.transpose(-1, -2) @ query, grad_value
