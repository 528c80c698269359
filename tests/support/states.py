"""All that a run remembers, held in memory at once, as only a test may."""

import torch

from bertkit.run.state import Tensors, gather_in_turn, named_state


def gather_state(model: torch.nn.Module, optimizers) -> Tensors:
    """The state with all of its tensors, on the first rank; nothing on others. All ranks take part."""
    tensors = named_state(model, optimizers)
    gathered = list(gather_in_turn(tensors))
    full = iter(gathered)
    return {part: {name: next(full) for name in named if gathered} for part, named in tensors.items()}
