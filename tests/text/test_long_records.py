"""Lines, documents and records of 50 MB are read in little memory, measured in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest
from text_files import encoded

PEAK = """
import sys
from bertkit.bench.measure import most_memory
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents

if sys.argv[1].endswith("parquet"):
    import pyarrow.parquet
before = most_memory()
chars = sum(len(document.text) for document in read_documents(CorpusConfig(corpus=[sys.argv[1]])))
print(chars, int(most_memory() - before))
"""


def chars_and_extra_megabytes(path: Path) -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True, timeout=120)
    chars, extra = map(int, done.stdout.split())
    return chars, extra


FIFTY = 50 * 10**6


def test_a_line_of_50_megabytes_stays_out_of_memory(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"word " * (FIFTY // 5))
    chars, extra = chars_and_extra_megabytes(path)
    assert chars == FIFTY
    assert extra < 50


def test_a_document_of_50_megabytes_stays_out_of_memory(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes((b"word " * 19 + b"word\n") * (FIFTY // 100))
    chars, extra = chars_and_extra_megabytes(path)
    assert FIFTY - 500_000 <= chars <= FIFTY
    assert extra < 50


# Python's csv holds a field in four bytes a character, with room to grow.
@pytest.mark.parametrize(("suffix", "megabytes"), [(".jsonl", 300), (".csv", 450), (".parquet", 300)])
def test_a_record_of_50_megabytes_is_held_a_few_times(tmp_path, suffix, megabytes):
    path = tmp_path / f"corpus{suffix}"
    path.write_bytes(encoded(suffix, ["word " * (FIFTY // 5)]))
    chars, extra = chars_and_extra_megabytes(path)
    assert chars == FIFTY
    assert extra < megabytes
