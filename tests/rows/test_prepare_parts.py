"""Parts prepared apart and merged are the whole; parts that do not belong together are refused."""

import shutil

import pytest
from preparing import SMALL, begun, sequences

from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import read_manifest
from data_pipelines.rows.prepare import Part, merge, note_sources, prepare
from data_pipelines.rows.shards import open_rows
from data_pipelines.text import digest, parts
from data_pipelines.text.config import CorpusConfig

pytestmark = pytest.mark.usefixtures("small_batches")


@pytest.mark.parametrize("of", [1, 3])
def test_the_parts_merged_have_the_documents_of_the_whole(corpus, tokenizer, tmp_path, monkeypatch, of):
    config = PrepareConfig(seq_len=256, rows="line", validation_share=0.2)
    prepare(corpus, tokenizer, config, tmp_path / "whole")
    for number in range(1, of + 1):
        made = prepare(corpus, tokenizer, config, tmp_path / "parts", part=Part.parse(f"{number}/{of}"))
        assert made == tmp_path / "parts" / f"part-{number:05d}-of-{of:05d}"
        if number < of:
            with pytest.raises(ValueError, match=f"{of - number} of {of} parts.*part-{number + 1:05d}"):
                merge(tmp_path / "parts")
    assert merge(tmp_path / "parts") == tmp_path / "parts"
    for split in ("train", "validation"):
        assert sorted(sequences(tmp_path / "parts", split)) == sorted(sequences(tmp_path / "whole", split))
        with monkeypatch.context() as patch:
            patch.setattr(digest, "file_hash", lambda path: pytest.fail(f"{path} was read, but nobody touched it"))
            open_rows(tmp_path / "parts", split).verify()
    prepare(corpus, tokenizer, config, tmp_path / "parts", report=pytest.fail)  # is the whole now
    with pytest.raises(ValueError, match="already finished"):
        merge(tmp_path / "parts")


def test_of_many_files_a_part_reads_its_own_alone(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "_GROUP_BYTES", 1)
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"the cat number {number} sat\n\nand the dog {number} ran")
    corpus, config = CorpusConfig(corpus=[str(tmp_path / "*.txt")]), PrepareConfig(seq_len=16, rows="line")
    prepare(corpus, tokenizer, config, tmp_path / "whole")
    note_sources(tmp_path / "rows", corpus)
    monkeypatch.setattr("data_pipelines.text.corpus.file_hash", lambda path: pytest.fail("hashed once, for all parts"))
    monkeypatch.setattr("data_pipelines.rows.prepare._ESTIMATE_CHARS", 1)  # the first file alone tells the room needed
    opened, inner = [], parts.read_sources
    monkeypatch.setattr(parts, "read_sources", lambda sources, *rest: opened.extend(sources) or inner(sources, *rest))
    for number in (1, 2):
        opened.clear()
        made = prepare(corpus, tokenizer, config, tmp_path / "rows", part=Part(number, 2))
        assert [source.path.name for source in opened] == ["0.txt", f"{number - 1}.txt", f"{number + 1}.txt"]
        assert read_manifest(made)["identity"]["split"] == "files"
    merge(tmp_path / "rows")
    assert sorted(sequences(tmp_path / "rows", "train")) == sorted(sequences(tmp_path / "whole", "train"))
    prepare(corpus, tokenizer, config, tmp_path / "rows", report=pytest.fail)  # is the whole now


def test_parts_that_do_not_belong_together_are_not_merged(home, corpus, tokenizer, tmp_path):
    parts = tmp_path / "parts"
    with pytest.raises(ValueError, match="holds no parts"):
        merge(tmp_path)
    prepare(corpus, tokenizer, SMALL, parts, part=Part(1, 2))
    copied = shutil.copytree(parts / "part-00001-of-00002", parts / "part-00002-of-00002")
    with pytest.raises(ValueError, match=r"part-00002-of-00002 .* the part changed"):
        merge(parts)
    shutil.rmtree(copied)
    prepare(corpus, home / "bpe", SMALL, parts, part=Part(2, 2))
    with pytest.raises(ValueError, match="the tokenizer changed"):
        merge(parts)
    shutil.rmtree(copied)
    begun(corpus, tokenizer, copied)
    with pytest.raises(ValueError, match="half prepared"):
        merge(parts)
    shutil.rmtree(copied)
    prepare(corpus, tokenizer, SMALL, parts, part=Part(2, 2))
    prepare(corpus, tokenizer, SMALL, parts, part=Part(2, 3))
    with pytest.raises(ValueError, match="part-00002-of-00003"):
        merge(parts)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/0", "-1/3", "a/b", "1/3/4", ""])
def test_a_part_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="part must look like 3/16"):
        Part.parse(text)
