"""Settings of `bertkit evaluate` and `bertkit judge`."""

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

    encoding: str = CorpusConfig.encoding
    """Encoding of the files, such as latin-1 or gb18030."""

    errors: Literal["strict", "replace"] = CorpusConfig.errors
    """What to do with bytes that are not of the encoding and with NUL: stop and name file and line, or replace."""

    def __post_init__(self):
        check_bounds(self)


@dataclass(frozen=True, kw_only=True)
class PairKeys:
    """Where a file of minimal pairs keeps what; the names of BLiMP, SLING and ZhoBLiMP are known."""

    good: str = ""
    """Key or column of the acceptable sentence, where a file calls it otherwise than benchmarks do."""

    bad: str = ""
    """Key or column of the unacceptable sentence."""

    paradigm: str = ""
    """Key or column of the paradigm; without one, the name of the file."""

    group: str = ""
    """Key or column of the group that paradigms share."""


@dataclass(frozen=True, kw_only=True)
class JudgeConfig(PairKeys):
    """Settings of `bertkit judge`."""

    method: Literal["word-wise", "plain"] = "word-wise"
    """What is masked while a token is scored: the token alone (plain), or also the later tokens of its word
    (word-wise)."""

    max_pairs: Annotated[int, Range("[0, inf)")] = 0
    """Pairs of each paradigm to judge, the first ones; 0 takes all."""

    ngram: Annotated[int, Range("[0, 8]")] = 5
    """Order of the n-gram model that is trained on the run's own rows, to compare with; 0 leaves it out."""

    def __post_init__(self):
        check_bounds(self)
