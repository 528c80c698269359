"""Parts prepared apart and merged are the whole; parts that do not belong together are refused."""

import shutil

import pytest
from preparing import SMALL, begun, sequences

from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import Part, merge, prepare
from data_pipelines.rows.shards import open_rows

pytestmark = pytest.mark.usefixtures("small_batches")


@pytest.mark.parametrize("of", [1, 3])
def test_the_parts_merged_have_the_documents_of_the_whole(corpus, tokenizer, tmp_path, of):
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
        open_rows(tmp_path / "parts", split).verify()
    prepare(corpus, tokenizer, config, tmp_path / "parts", report=pytest.fail)  # is the whole now
    with pytest.raises(ValueError, match="one finished set already"):
        merge(tmp_path / "parts")


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
    with pytest.raises(ValueError, match="part-00002-of-00003 beside 2 other parts"):
        merge(parts)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/0", "-1/3", "a/b", "1/3/4", ""])
def test_a_part_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="part must look like 3/16"):
        Part.parse(text)
