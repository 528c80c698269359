"""A block and its input enter, the block's output leaves, recomputed in the backward pass where that is asked for."""

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def checkpointed(encoder: nn.Module, layer: nn.Module, hidden_TD: Tensor, *rest) -> Tensor:
    if encoder.gradient_checkpointing and encoder.training:
        return checkpoint(layer, hidden_TD, *rest, use_reentrant=False)
    return layer(hidden_TD, *rest)
