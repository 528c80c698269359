"""Segmenters that split text without spaces into words, by name. This file imports nothing heavy."""

from collections.abc import Callable, Iterable

from data_pipelines.table import Table

Segmenter = Callable[[str], Iterable[str]]
"""Splits a text into words, which joined again give the text."""

SEGMENTERS: Table[Callable[[], Segmenter]] = Table("segmenter", {"jieba": "data_pipelines.vocab.words:jieba_segmenter"})
"""A row opens its segmenter."""
