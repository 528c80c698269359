"""Settings of the rows that a corpus is cut into."""

from dataclasses import dataclass
from typing import Annotated, Literal

from data_pipelines.bounds import Range, check_bounds


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    seq_len: Annotated[int, Range("[8, 2**20]")] = 128
    """Longest row in tokens, [CLS] and [SEP] included."""

    rows: Literal["fill", "sentences", "line"] = "fill"
    """fill packs documents into rows of seq_len and keeps their borders; sentences packs whole sentences, each between
    borders of its own, as taggers and minimal pairs have them; line keeps one document a row."""

    validation_share: Annotated[float, Range("[0, 1)")] = 0.01
    """Share of documents held out, chosen by a hash of the text: a document stays on its side as the corpus grows."""

    segmenter: Literal["tokenizer", "jieba"] = "tokenizer"
    """What a word is, for whole-word masking: the tokenizer's own words, or jieba's Chinese words (extra zh)."""

    shard_tokens: Annotated[int, Range("[8, 2**31]")] = 2**25
    """Tokens in a shard, at least seq_len; a killed preparation resumes after its last full shard."""

    def __post_init__(self):
        check_bounds(self)
        if self.shard_tokens < self.seq_len:
            raise ValueError(f"shard_tokens must be at least seq_len={self.seq_len}, got {self.shard_tokens}")
