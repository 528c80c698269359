"""Rows before masking and the packed batch after it: what travels from shards to collator to encoder."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple


class RowBatch(NamedTuple):
    """Rows of token ids laid end to end, as numpy arrays: T tokens, R rows, S sequences (a row holds one or more)."""

    ids_T: Any
    row_starts: Any
    """(R+1,) borders of the rows."""
    sequence_starts: Any
    """(S+1,) borders of the sequences that attention stays inside."""
    starts_word_T: Any = None
    """Whether a token is the first of its word, where that is known."""


@dataclass(frozen=True)
class PackedBatch:
    """Sequences laid end to end, with the masked positions and what stood there.

    T tokens in all, S sequences, M masked tokens. The arrays are torch tensors or numpy arrays.
    """

    input_ids: Any
    """(T,) token ids after masking."""
    position_ids: Any
    """(T,) position of each token in its sequence, from 0."""
    cu_seqlens: Any
    """(S+1,) int32: sequence s holds tokens cu_seqlens[s] to cu_seqlens[s+1]; attention stays inside."""
    max_seqlen: int
    """Length of the longest sequence."""
    target_index: Any
    """(M,) positions in the pack that are to be predicted."""
    target_ids: Any
    """(M,) the tokens that stood there."""
    target_kind: Any
    """(M,) what stands there now: 0 [MASK], 1 a random token, 2 the token itself."""
    target_starts_word: Any
    """(M,) whether the target is the first piece of its word."""

    def to(self, device, non_blocking: bool = False) -> "PackedBatch":
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "PackedBatch":
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, function) -> "PackedBatch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return PackedBatch(
            **{name: value if isinstance(value, int) else function(value) for name, value in values.items()}
        )
