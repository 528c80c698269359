"""Settings of a tokenizer that is trained."""

from dataclasses import dataclass
from typing import Annotated, Literal

from data_pipelines.bounds import Range, check_bounds


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    kind: Literal["wordpiece", "bpe"] = "wordpiece"
    """wordpiece (as BERT: words split into subwords, Chinese characters apart) or bpe (byte-level, nothing unknown)."""

    vocab_size: Annotated[int, Range("[64, 2**24]")] = 8192
    """Number of tokens, the special ones included."""

    lowercase: bool = True
    """Fold case and strip accents (wordpiece only; bpe keeps the text as it is)."""

    min_frequency: Annotated[int, Range("[1, 2**31]")] = 2
    """How often a subword must occur to become a token."""

    sample_mb: Annotated[int, Range("[1, 2**31]")] = 200
    """Megabytes of text to learn from at most, taken evenly from the whole corpus."""

    max_word_chars: Annotated[int, Range("[1, 2**31]")] = 256
    """Longer runs without a space (base64, minified code) are cut before training, so they cannot fill memory."""

    def __post_init__(self):
        check_bounds(self)
