"""Every setting of the data line with its default and its help, free of heavy imports."""

import dataclasses
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    corpus: list[str]
    """Files (.txt .jsonl .json .ndjson .csv .parquet, each also .gz), folders, globs or hf:NAME for a Hugging Face
    dataset (hf:NAME:SPLIT, hf:NAME:SPLIT:CONFIG). Append @WEIGHT to use a source more or less often: books.txt@2
    reads every document twice, web.txt@0.5 about every second one."""

    documents: Literal["blank-line", "line"] = "blank-line"
    """What separates documents in plain text: a blank line, or every line break."""

    field: str = "text"
    """Column or key that holds the document in JSON Lines, CSV, Parquet and Hugging Face datasets."""

    errors: Literal["strict", "replace"] = "strict"
    """What to do with bytes that are not UTF-8 and with NUL: stop and name file and line, or replace."""

    unique_paragraphs: bool = False
    """Drop every paragraph (line of a document) that occurred before, anywhere in the corpus."""

    def __post_init__(self):
        if not self.corpus:
            raise ValueError("corpus names no source; give at least one file, folder, glob or hf:NAME")


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    kind: Literal["wordpiece", "bpe"] = "wordpiece"
    """wordpiece (as BERT: words split into pieces, Chinese characters apart) or bpe (byte-level, nothing unknown)."""

    vocab_size: int = 8192
    """Number of tokens, the special ones included."""

    lowercase: bool = True
    """Fold case and strip accents (wordpiece only; bpe keeps the text as it is)."""

    min_frequency: int = 2
    """How often a piece must occur to become a token."""

    sample_mb: int = 200
    """At most so many megabytes of text are looked at, taken evenly from the whole corpus."""

    max_word_chars: int = 256
    """Longer runs without a space (base64, minified code) are cut before training, so they cannot fill memory."""

    def __post_init__(self):
        if not 64 <= self.vocab_size <= 2**24:
            raise ValueError(f"vocab_size must lie between 64 and {2**24}, got {self.vocab_size}")
        for name in ("min_frequency", "sample_mb", "max_word_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
            if getattr(self, name) > 2**31:
                raise ValueError(f"{name} must be at most {2**31}, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    seq_len: int = 128
    """Longest row in tokens, [CLS] and [SEP] included."""

    rows: Literal["fill", "line"] = "fill"
    """fill packs documents into rows of seq_len and keeps their borders; line keeps one document a row."""

    validation_share: float = 0.01
    """Share of documents held out, chosen by a hash of the text: a document stays on its side as the corpus grows."""

    segmenter: Literal["tokenizer", "jieba"] = "tokenizer"
    """What a word is, for whole-word masking: the tokenizer's own words, or jieba's Chinese words (extra zh)."""

    shard_tokens: int = 2**25
    """Tokens in a shard; a killed preparation goes on after its last full shard."""

    def __post_init__(self):
        if not 8 <= self.seq_len <= 2**20:
            raise ValueError(f"seq_len must lie between 8 and {2**20}, got {self.seq_len}")
        if not 0 <= self.validation_share < 1:
            raise ValueError(f"validation_share must lie in [0, 1), got {self.validation_share}")
        if not self.seq_len <= self.shard_tokens <= 2**31:
            raise ValueError(f"shard_tokens must lie between seq_len and {2**31}, got {self.shard_tokens}")


@dataclass(frozen=True, kw_only=True)
class MaskConfig:
    rate: float = 0.15
    """Share of the maskable tokens (all but special ones) chosen as targets."""

    final_rate: float | None = None
    """The rate at the last step, reached in a straight line from `rate`; none keeps it fixed."""

    mask_share: float = 0.8
    """Share of the targets replaced by [MASK]."""

    random_share: float = 0.1
    """Share of the targets replaced by a random ordinary token; the rest stays as it is."""

    unit: Literal["token", "word", "span"] = "token"
    """What is chosen as a whole: a token, a word, or a span of geometric length. A word or span is masked,
    replaced or kept as a whole too."""

    count: Literal["bernoulli", "exact"] = "bernoulli"
    """bernoulli decides for each unit by itself; exact takes the same share in every row."""

    span_mean: float = 3.8
    """Mean span length before it is cut at span_max (unit span only)."""

    span_max: int = 10
    """Longest span (unit span only)."""

    def __post_init__(self):
        for name in ("rate", "final_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ValueError(f"{name} must lie in (0, 1), got {value}")
        for name in ("mask_share", "random_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise ValueError(
                f"mask_share + random_share must not exceed 1, got {self.mask_share} + {self.random_share}"
            )
        if not self.span_mean >= 1:  # NaN too
            raise ValueError(f"span_mean must be at least 1, got {self.span_mean}")
        if not 1 <= self.span_max <= 64:
            raise ValueError(f"span_max must lie between 1 and 64, got {self.span_max}")


@dataclass(frozen=True, kw_only=True)
class TaggedConfig:
    tag_column: str = ""
    """Column or key with the tags: a number (1 is the first column, -1 the last) or a name; misc:KEY and feats:KEY
    reach into CoNLL-U. Default: the last column, upos in CoNLL-U, tags in JSON Lines, label beside a text."""

    word_column: str = ""
    """Column or key with the words, or with the text of a text classification. Default: the first column, form in
    CoNLL-U, tokens in JSON Lines, text beside a label."""

    columns: list[str] = dataclasses.field(default_factory=list)
    """Names of a CoNLL file's columns, in order, where the file does not name them itself (# global.columns = ...)."""

    scheme: Literal["auto", "plain", "iob1", "iob2", "bioes"] = "auto"
    """How tags write spans: recognised, or as named here. Spans are learnt and given back in IOB2."""

    errors: Literal["strict", "replace"] = "strict"
    """What to do with bytes that are not UTF-8 and with NUL: stop and name file and line, or replace."""
