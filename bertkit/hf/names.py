"""The two-way table of a model's weights: our name on the left, Hugging Face's on the right."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from bertkit.hf.files import Weights
from bertkit.hf.layout import Layout


class Weight(NamedTuple):
    """One of our weights and the weights of theirs it is made of, one above the other."""

    ours: str
    theirs: tuple[str, ...]
    skip: int = 0
    """Leading rows of theirs that are never looked up."""
    copies: tuple[str, ...] = ()
    """Further names under which ours is written again."""

    def shapes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """The shape each of theirs must have where ours has `shape`."""
        return {name: (shape[0] // len(self.theirs) + self.skip, *shape[1:]) for name in self.theirs}

    def read(self, weights: Weights) -> Tensor:
        parts = [weights[name] for name in self.theirs]
        return parts[0][self.skip :].contiguous() if len(parts) == 1 else torch.cat(parts)

    @property
    def written(self) -> tuple[str, ...]:
        """Every name under which ours, or a part of it, is written."""
        return (*self.theirs, *self.copies)

    def write(self, name: str, tensor: Tensor) -> Tensor:
        """What is written under one of these names, of all of ours; no copy where a view will do."""
        if self.skip:
            tensor = torch.cat([tensor.new_zeros(self.skip, *tensor.shape[1:]), tensor])
        return tensor if name in self.copies else tensor.chunk(len(self.theirs))[self.theirs.index(name)]


def weight_table(layout: Layout, ours: Iterable[str]) -> list[Weight]:
    """A row for each of our weights; a weight of an encoder that its model_type does not name is refused."""
    return [_weight(layout, name) for name in ours]


def _weight(layout: Layout, ours: str) -> Weight:
    name = ours.removeprefix("encoder.")
    if name == "head.decoder_bias":
        return _decoder_bias(layout, ours)
    number = re.fullmatch(r"layers\.(\d+)\..*", name)
    pattern = name.replace(f".{number[1]}.", ".*.", 1) if number else name
    module, _, kind = pattern.rpartition(".")
    names = layout.row.names
    if pattern in names:
        found, ending = names[pattern], ""
    elif module in names:
        found, ending = names[module], f".{kind}"
    elif name.startswith("head."):
        return Weight(ours, (ours,))
    else:
        raise ValueError(f"a {layout.config.model_type} of Hugging Face has no weight like {ours!r}")
    theirs = (found,) if isinstance(found, str) else found
    spelled = (part.replace("*", number[1] if number else "*") + ending for part in theirs)
    skip = layout.row.first_position(layout.config) if name == "positions.weight" else 0
    return Weight(ours, tuple(layout.spelled(part) for part in spelled), skip)


def _decoder_bias(layout: Layout, ours: str) -> Weight:
    first, second = layout.row.head_name("head.decoder_bias"), layout.row.second_bias
    if layout.reads_second_bias and second is not None:
        return Weight(ours, (second,))
    if second is None or layout.config.tie_word_embeddings:
        return Weight(ours, (first,))
    # Where nothing is tied, transformers has the bias twice and adds the second.
    return Weight(ours, (first,), copies=(second,))
