"""A label format: a sentence a line, each word with its tag behind a slash (.pos)."""

from collections.abc import Iterable, Iterator

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import FORMATS, LabelFormat
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import Line


def read_slashed(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    for line in lines:
        pairs = [word.rpartition("/") for word in line.text.split()]
        words, tags = [word for word, _, _ in pairs], [tag for _, _, tag in pairs]
        yield Sentence(words, tags, source, lines=[line.number] * len(words))


FORMATS.add(".pos", LabelFormat(sentences=read_slashed))
