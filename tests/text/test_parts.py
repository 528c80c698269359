"""Blocks are the same ones however many parts there are, and no part reads more files than it must."""

import pytest

from data_pipelines.text import parts
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.text.parts import Part, read_blocks


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Six files of four documents each; two files make a group, and every group several blocks."""
    monkeypatch.setattr(parts, "BLOCK_CHARS", 30)
    monkeypatch.setattr(parts, "_GROUP_BYTES", 100)
    for file in range(6):
        documents = [f"document {number} of file {file}" for number in range(4)]
        (tmp_path / f"{file}.txt").write_text("\n\n".join(documents))
    return CorpusConfig(corpus=[str(tmp_path)])


def blocks_of(corpus, of):
    found = [one for number in range(1, of + 1) for one in read_blocks(corpus, Part(number, of))]
    assert len({block for block, _ in found}) == len(found)
    return dict(found)


@pytest.mark.parametrize("of", [1, 2, 3, 4, 100])
def test_all_parts_together_have_every_block_once(corpus, of):
    whole = blocks_of(corpus, 1)
    assert blocks_of(corpus, of) == whole
    assert [document for block in sorted(whole) for document in whole[block]] == list(read_documents(corpus))
    assert {block.group for block in whole} == {0, 1, 2}
    assert max(block.number for block in whole) > 1


@pytest.mark.parametrize(("of", "read"), [(3, 2), (4, 6)])
def test_a_part_reads_its_own_files_alone_where_there_are_enough(corpus, monkeypatch, of, read):
    opened = []
    inner = parts.read_sources

    def noting(sources, *rest):
        opened.extend(sources)
        return inner(sources, *rest)

    monkeypatch.setattr(parts, "read_sources", noting)
    list(read_blocks(corpus, Part(2, of)))
    assert len(opened) == read


def test_repeated_paragraphs_are_removed_as_from_the_whole(corpus, tmp_path):
    (tmp_path / "9.txt").write_text("document 1 of file 0\n\nsomething new")
    corpus = CorpusConfig(corpus=corpus.corpus, unique_paragraphs=True)
    assert blocks_of(corpus, 2) == blocks_of(corpus, 1)
    assert len([document for block in blocks_of(corpus, 2).values() for document in block]) == 25


def test_names_of_blocks_sort_as_the_corpus_does(corpus):
    blocks = sorted(blocks_of(corpus, 1))
    assert [block.name for block in blocks] == sorted(block.name for block in blocks)
