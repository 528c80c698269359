"""Padded rows enter, packed tokens leave, and back: sequences laid end to end, with their borders beside them."""

# B rows, L padded length, T tokens in the pack, S sequences

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Packed(Protocol):
    """What an encoder reads of a packed batch; a collator's batch may carry more."""

    @property
    def input_ids(self) -> Any: ...
    @property
    def position_ids(self) -> Any: ...
    @property
    def cu_seqlens(self) -> Any: ...
    @property
    def max_seqlen(self) -> int: ...


class Pack(NamedTuple):
    """Sequences laid end to end; sequence s holds tokens cu_seqlens[s] to cu_seqlens[s + 1]."""

    input_ids: Tensor
    """(T,) token ids."""
    position_ids: Tensor
    """(T,) position of each token in its sequence, from 0."""
    cu_seqlens: Tensor
    """(S+1,) int32 borders."""
    max_seqlen: int
    """Length of the longest sequence."""
    token_type_ids: Tensor | None = None
    """(T,) token types; all 0 when absent."""
    prefixes: Tensor | None = None
    """(S,) int32: a token sees what came before it and this many tokens at the start of its sequence; all of its
    sequence when absent."""


def pack(
    input_ids_BL: Tensor, attention_mask_BL: Tensor | None = None, token_type_ids_BL: Tensor | None = None
) -> tuple[Pack, Tensor]:
    """The attended tokens of padded rows, and where in the flattened rows each of them stood.

    Positions count from a row's first attended token, so padding on the left and on the right mean the same.
    """
    if input_ids_BL.ndim != 2:
        raise ValueError(f"input_ids must have shape (batch, length), got {tuple(input_ids_BL.shape)}")
    if input_ids_BL.shape[1] == 0:
        raise ValueError(f"input_ids must hold at least one column, got shape {tuple(input_ids_BL.shape)}")
    for name, values in (("attention_mask", attention_mask_BL), ("token_type_ids", token_type_ids_BL)):
        if values is not None and values.shape != input_ids_BL.shape:
            raise ValueError(
                f"{name} must have the shape of input_ids, {tuple(input_ids_BL.shape)}, got {tuple(values.shape)}"
            )
    # A compiler does not know what a mask holds: it is not checked there, and a row may be as long as it is padded.
    compiling = torch.compiler.is_compiling()
    if attention_mask_BL is None:
        attended_BL = torch.ones_like(input_ids_BL, dtype=torch.bool)
    else:
        attended_BL = attention_mask_BL == 1
        if not compiling:
            _check_values(attention_mask_BL, attended_BL)
    lengths_B = attended_BL.sum(dim=1, dtype=torch.int32)
    first_B = attended_BL.int().argmax(dim=1)
    index_T = attended_BL.flatten().nonzero().squeeze(1)
    row_T, column_T = index_T // input_ids_BL.shape[1], index_T % input_ids_BL.shape[1]
    position_T = column_T - first_B[row_T]
    if not compiling:
        _check_gaps(position_T >= lengths_B[row_T], row_T)
    cu_seqlens = torch.nn.functional.pad(lengths_B.cumsum(0, dtype=torch.int32), (1, 0))
    packed = Pack(
        input_ids=input_ids_BL.flatten()[index_T],
        position_ids=position_T,
        cu_seqlens=cu_seqlens,
        max_seqlen=input_ids_BL.shape[1] if compiling else int(lengths_B.max()) if len(lengths_B) else 0,
        token_type_ids=None if token_type_ids_BL is None else token_type_ids_BL.flatten()[index_T],
    )
    return packed, index_T


def _check_values(attention_mask_BL: Tensor, attended_BL: Tensor) -> None:
    odd = attention_mask_BL[~attended_BL & (attention_mask_BL != 0)]
    if len(odd):
        raise ValueError(f"attention_mask must hold 1 for tokens and 0 for padding, got {odd[0].item()}")


def _check_gaps(beyond_T: Tensor, row_T: Tensor) -> None:
    if bool(beyond_T.any()):
        raise ValueError(
            f"attention_mask has a gap in row {int(row_T[beyond_T][0])}; the attended tokens of a row must stand next "
            "to each other"
        )


def check_ids(name: str, ids_T: Tensor, size: int) -> None:
    """Refuse ids outside a table of `size` rows, where that costs nothing: a GPU would have to wait."""
    if torch.compiler.is_compiling() or ids_T.device.type != "cpu" or not len(ids_T):
        return
    low, high = (int(value) for value in ids_T.aminmax())
    if low < 0 or high >= size:
        raise ValueError(f"{name} must lie in [0, {size}), got {low if low < 0 else high}")


def prefixes_of(batch: Packed) -> Tensor | None:
    """Where the tokens of a batch do not see all that comes after them: `Pack.prefixes`."""
    return getattr(batch, "prefixes", None)


def middle_of(batch: Packed) -> Tensor | None:
    """(K,) the tokens that pass through the middle blocks of an encoder, ascending; None where all do."""
    return getattr(batch, "middle_index", None)


def only_at(batch: Packed, index_K: Tensor) -> Pack:
    """The tokens at ascending places of a pack, each in its sequence and at its position."""
    return Pack(
        input_ids=batch.input_ids[index_K],
        position_ids=batch.position_ids[index_K],
        cu_seqlens=torch.searchsorted(index_K, batch.cu_seqlens.long()).int(),
        max_seqlen=batch.max_seqlen,
        prefixes=prefixes_of(batch),
    )


def unpack(values_T: Tensor, index_T: Tensor, shape_BL: torch.Size) -> Tensor:
    """Put packed values (T, ...) back to their places in (B, L, ...); padding holds zeros."""
    rows, length = shape_BL
    flat = values_T.new_zeros(rows * length, *values_T.shape[1:])
    return flat.index_copy(0, index_T, values_T).unflatten(0, (rows, length))


def computed_packed(
    compute: Callable[[Packed], Tensor],
    batch: Packed | Tensor,
    attention_mask_BL: Tensor | None = None,
    token_type_ids_BL: Tensor | None = None,
) -> Tensor:
    """`compute` of a packed batch as it is; of padded rows by packing, computing and unpacking once."""
    if not isinstance(batch, Tensor):
        return compute(batch)
    packed, index_T = pack(batch, attention_mask_BL, token_type_ids_BL)
    return unpack(compute(packed), index_T, batch.shape)
