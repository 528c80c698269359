"""Settings of the corpus: which sources, and how they are read."""

from dataclasses import dataclass
from typing import Any, Literal

from data_pipelines.text.encodings import UTF_8, check_encoding


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    corpus: list[str]
    """Files (.txt .jsonl .json .ndjson .csv .parquet .arrow .mds, each also .gz), folders or globs, here or on a store (s3://,
    gs://, hdfs://, https://), or hf:NAME for a Hugging Face dataset (hf:NAME:SPLIT, hf:NAME:SPLIT:CONFIG). Append
    @WEIGHT to use a source more or less often: books.txt@2 reads every document twice, web.txt@0.5 about every second
    one."""

    documents: Literal["blank-line", "line"] = "blank-line"
    """What separates documents in plain text: a blank line, or every line break."""

    field: str = "text"
    """Column or key that holds the document in JSON Lines, CSV, Parquet, Arrow, MDS and Hugging Face datasets."""

    content: Literal["text", "ids"] = "text"
    """What the field holds: text, or token ids that the given tokenizer made elsewhere (input_ids), as a list."""

    encoding: str = UTF_8
    """Encoding of text, JSON Lines and CSV, such as latin-1 or gb18030. Parquet and datasets are UTF-8."""

    errors: Literal["strict", "replace"] = "strict"
    """What to do with bytes that are not of the encoding and with NUL: stop and name file and line, or replace."""

    unique_paragraphs: bool = False
    """Drop every paragraph (line of a document) that occurred before, anywhere in the corpus."""

    def __post_init__(self):
        if not self.corpus:
            raise ValueError("corpus is empty; give at least one file, folder, glob, URL or hf:NAME")
        check_encoding(self.encoding)
        if self.content == "ids" and self.unique_paragraphs:
            raise ValueError("unique_paragraphs needs text, and content=ids has none")

    def options(self) -> dict[str, Any]:
        """All but the sources, to identify a text; default encoding and content are left out."""
        usual = {"corpus"} | ({"encoding"} if self.encoding == UTF_8 else set())
        usual |= {"content"} if self.content == "text" else set()
        return {name: value for name, value in vars(self).items() if name not in usual}
