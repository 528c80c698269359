"""Settings of masking."""

from dataclasses import dataclass
from typing import Annotated, Literal

from data_pipelines.bounds import OneOf, Range, check_bounds
from data_pipelines.masks.units import UNITS


@dataclass(frozen=True, kw_only=True)
class MaskConfig:
    rate: Annotated[float, Range("(0, 1)")] = 0.15
    """Share of the maskable tokens (all but special ones) chosen as targets."""

    final_rate: Annotated[float | None, Range("(0, 1)")] = None
    """The rate at the last step; it changes linearly from `rate`. none keeps it fixed."""

    mask_share: Annotated[float, Range("[0, 1]")] = 0.8
    """Share of the targets replaced by [MASK]."""

    random_share: Annotated[float, Range("[0, 1]")] = 0.1
    """Share of the targets replaced by a random ordinary token; the rest stays as it is."""

    unit: Annotated[str, OneOf(UNITS)] = "token"
    """What is chosen as a whole: a token, a word, or a span of geometric length. A word or span is masked,
    replaced or kept as a whole too."""

    count: Literal["bernoulli", "exact"] = "bernoulli"
    """bernoulli decides for each unit independently; exact takes the same share in every row. Rows so short that
    bernoulli would often choose nothing take the exact share too, in units of several tokens."""

    at_least_one: bool = True
    """Whether every row with anything to choose has a target. That raises the rate of very short rows, to one unit of
    theirs; inspect-masks shows by how much."""

    span_mean: Annotated[float, Range("[1, inf]")] = 3.8
    """Mean span length before it is cut at span_max (unit span only)."""

    span_max: Annotated[int, Range("[1, 64]")] = 10
    """Longest span (unit span only)."""

    def __post_init__(self):
        check_bounds(self)
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise ValueError(
                f"mask_share + random_share must not exceed 1, got {self.mask_share} + {self.random_share}"
            )
