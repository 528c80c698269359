"""Settings of `bertkit evaluate`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from data_pipelines.bounds import Range, check_bounds
from data_pipelines.masks.config import MaskConfig
from data_pipelines.text.config import CorpusConfig


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    seq_len: Annotated[int, Range("[8, inf)")] = 128
    """Longest row in tokens; never more than the model has positions for."""

    mask_rate: Annotated[float, Range("(0, 1)")] = MaskConfig.rate
    """Share of masked tokens."""

    max_rows: Annotated[int, Range("[1, inf)")] = 2000
    """Rows to measure loss and accuracy on."""

    words: Annotated[int, Range("[0, inf)")] = 2000
    """Words to measure pseudo-perplexity on, one forward pass for each subword; 0 leaves it out."""

    micro_batch: Annotated[int, Range("[1, inf)")] = 32
    """Rows computed at once."""

    documents: Literal["blank-line", "line"] = CorpusConfig.documents
    """What separates documents in plain text."""

    field: str = CorpusConfig.field
    """Column or key that holds the document in JSON Lines, CSV, Parquet and Hugging Face datasets."""

    def __post_init__(self):
        check_bounds(self)
