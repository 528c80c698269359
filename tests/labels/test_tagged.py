"""Which format a labeled file has is told by its suffix, a row of a table; one from outside counts at once."""

import pytest
from labeling import read

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import FORMATS, LabelFormat
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.tagged import read_tagged


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no file .*write hf:nope"):
        list(read_tagged("nope", TaggedConfig()))


def read_slashes(lines, source, config, tagged):
    for line in lines:
        words, tags = zip(*(cell.split("/") for cell in line.text.split()), strict=True)
        yield Sentence(list(words), list(tags) if tagged else None, source, [line.number] * len(words))


@pytest.mark.parametrize("name", ["x.slashes", "X.SLASHES.gz"])
def test_a_format_from_outside_is_read_by_its_suffix(tmp_path, monkeypatch, name):
    text = "Anna/B-PER runs/O\nHome/O\n"
    with pytest.raises(ValueError, match=rf"{name}:2: 1 column.* 2"):
        read(tmp_path / name, text)  # a suffix that nobody added is CoNLL
    monkeypatch.setattr(FORMATS, "_rows", dict(FORMATS._rows))
    FORMATS.add(".slashes", LabelFormat(sentences=read_slashes))
    found = read(tmp_path / name, text)
    assert [(s.words, s.tags) for s in found] == [(["Anna", "runs"], ["B-PER", "O"]), (["Home"], ["O"])]
    assert found[1].place().endswith(f"{name}:2")


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_reads_something(suffix):
    assert any(FORMATS[suffix])
