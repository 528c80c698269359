"""The packed batch: what every collator hands to an encoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

IGNORED = -100
"""The label of a token that is no target, as in torch's cross-entropy and in transformers."""


@dataclass(frozen=True)
class PackedBatch:
    """Sequences laid end to end, with the positions to predict and what is right there.

    T tokens in all, S sequences, M targets. The arrays are torch tensors or numpy arrays.
    """

    input_ids: Any
    """(T,) token ids."""
    position_ids: Any
    """(T,) position of each token in its sequence, from 0."""
    cu_seqlens: Any
    """(S+1,) int32: sequence s holds tokens cu_seqlens[s] to cu_seqlens[s+1]; attention stays inside."""
    max_seqlen: int
    """Length of the longest sequence."""
    target_index: Any
    """(M,) positions in the pack that are to be predicted."""
    target_ids: Any
    """(M,) what is right there: the token that was masked, or the label."""
    target_kind: Any = None
    """(M,) what a masked position holds now: 0 [MASK], 1 a random token, 2 the token itself."""
    target_starts_word: Any = None
    """(M,) whether a masked token is the first of its word."""
    token_type_ids: Any = None
    """(T,) which of two texts a token is of, 0 or 1; None where a sequence is one text."""
    target_group: Any = None
    """(M,) the answer to which each position belongs, from 0, where the mean of several is one answer."""
    prefixes: Any = None
    """(S,) int32: a token sees what came before it and this many tokens at the start of its sequence; None where every
    token sees all of its sequence."""
    middle_index: Any = None
    """(K,) the tokens that pass through the middle blocks of an encoder, ascending; None where all do."""
    target_draws: Any = None
    """(M,) a random number in [0, 1) for each position, where something is drawn to stand there."""

    @classmethod
    def from_padded(cls, batch: Mapping[str, Any]) -> "PackedBatch":
        """The tensors of a padded batch of `MaskingCollator` without the padding, for where batches are cut by rows
        before a model reads them, as accelerate's dispatcher does."""
        import torch

        attended_RL = batch["attention_mask"] == 1
        lengths_R = attended_RL.sum(1, dtype=torch.int32)
        labels_T = batch["labels"][attended_RL]
        target_index = (labels_T != IGNORED).nonzero().squeeze(1)
        types_RL = batch.get("token_type_ids")
        return cls(
            input_ids=batch["input_ids"][attended_RL],
            position_ids=(attended_RL.cumsum(1) - 1)[attended_RL],
            cu_seqlens=torch.nn.functional.pad(lengths_R.cumsum(0, dtype=torch.int32), (1, 0)),
            max_seqlen=int(lengths_R.max()),
            target_index=target_index,
            target_ids=labels_T[target_index],
            token_type_ids=None if types_RL is None else types_RL[attended_RL],
        )

    def to(self, device: Any, non_blocking: bool = False) -> "PackedBatch":
        """What a model reads on the device; how a target was masked stays where it is."""
        here = {"target_kind": self.target_kind, "target_starts_word": self.target_starts_word}
        alone = replace(self, target_kind=None, target_starts_word=None)
        return replace(alone.map(lambda tensor: tensor.to(device, non_blocking=non_blocking)), **here)

    def pin_memory(self) -> "PackedBatch":
        return self.map(lambda tensor: tensor.pin_memory())

    def map(self, function: Callable[[Any], Any]) -> "PackedBatch":
        """The batch with every array replaced by what the function makes of it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: value for name, value in values.items() if value is not None and name != "max_seqlen"}
        return replace(self, **{name: function(array) for name, array in arrays.items()})
