"""A corpus format: subtitles (.srt), of which what is said is one document."""

from collections.abc import Iterator
from pathlib import Path

from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.lines import read_lines
from data_pipelines.text.readers import READERS, Piece


def read_subtitles(path: Path, config: CorpusConfig) -> Iterator[Piece]:
    lines = [line.text.strip() for line in read_lines(path, config.errors, cut_long=True)]
    said = [line for line in lines if line and not line.isdecimal() and "-->" not in line]
    yield Piece(" ".join(said), f"{path}:1", continued=False)


READERS.add(".srt", read_subtitles)
