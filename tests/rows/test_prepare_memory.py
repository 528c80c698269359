"""Memory of a preparation: the same for a corpus of any size; tests of faults show it for one line or document."""

import subprocess
import sys

import pytest
from grammar import documents

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]


PEAK = """
import sys
from bertkit.bench.measure import most_memory
from data_pipelines.text.config import CorpusConfig
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import prepare
before = int(most_memory())
prepare(CorpusConfig(corpus=[sys.argv[1]]), sys.argv[2], PrepareConfig(), sys.argv[3])
print(before, int(most_memory()))
"""


def megabytes(path, tokenizer, folder) -> tuple[int, int]:
    command = [sys.executable, "-c", PEAK, path, tokenizer, folder]
    before, peak = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    return before, peak


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_preparing_ten_times_the_text_takes_no_more_memory(home, tmp_path, kind):
    """Which is also less than a gigabyte."""
    blocks, peaks = ["\n\n".join(documents(6_000, seed)).encode() + b"\n\n" for seed in range(4)], []
    for size in (4 * 10**6, 4 * 10**7):
        with open(tmp_path / f"{size}.txt", "wb") as file:
            while file.tell() < size:
                file.writelines(blocks)
        peaks.append(megabytes(tmp_path / f"{size}.txt", home / kind, tmp_path / f"{size}")[1])
    assert peaks[1] < peaks[0] + 100, peaks
    assert peaks[1] < 1000
