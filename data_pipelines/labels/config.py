"""Settings of labeled files: where words and tags are, and how tags are written."""

from dataclasses import dataclass, field
from typing import Literal

from data_pipelines.text.encodings import UTF_8, check_encoding


@dataclass(frozen=True, kw_only=True)
class TaggedConfig:
    tag_column: str = ""
    """Column or key with the tags: a number (1 is the first column, -1 the last) or a name; misc:KEY and feats:KEY
    reach into CoNLL-U. Default: the last column, upos in CoNLL-U, tags in JSON Lines, label beside a text."""

    word_column: str = ""
    """Column or key with the words, or with the text of a text classification. Default: the first column, form in
    CoNLL-U, tokens in JSON Lines, text beside a label."""

    pair_column: str = ""
    """Column or key with the second text, where texts come in pairs; word_column has the first. Default: text2,
    sentence2, hypothesis and the like beside text1, sentence1, premise."""

    feature_column: str = ""
    """Column or key with features of the target, such as V;PST;3, where texts are rewritten; word_column has the source
    and tag_column the target. Default: no features."""

    label_separator: str = ","
    """Separator between the labels of a text that has several, where a file does not hold them as a list."""

    columns: list[str] = field(default_factory=list)
    """Names of a CoNLL file's columns, in order, where the file does not name them itself (# global.columns = ...)."""

    scheme: Literal["auto", "plain", "iob1", "iob2", "bioes"] = "auto"
    """How tags encode spans; auto recognises the scheme. Models learn and return IOB2."""

    encoding: str = UTF_8
    """Encoding of the files, such as latin-1 or gb18030. Datasets are UTF-8."""

    errors: Literal["strict", "replace"] = "strict"
    """What to do with bytes that are not of the encoding and with NUL: stop and name file and line, or replace."""

    def __post_init__(self):
        check_encoding(self.encoding)
