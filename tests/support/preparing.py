"""What the tests of preparation share: a small setting, texts, ways to look into a folder, and ways to stop."""

from itertools import pairwise

import numpy as np
import pytest
from grammar import NAMES, documents

from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import open_rows

SMALL = PrepareConfig(seq_len=32, shard_tokens=600, validation_share=0.1)


def numbered(count: int) -> list[str]:
    """Texts of words the tokenizers know, no two alike."""
    return [
        " ".join(NAMES[i // 6**place % 6] for place in range(4)) + f" {text}" for i, text in enumerate(documents(count))
    ]


def sequences(folder, split="train") -> list[list[int]]:
    rows = open_rows(folder, split)
    batch = rows.gather(np.arange(len(rows)))
    starts = batch.sequence_starts
    return [batch.ids_T[a:b].tolist() for a, b in pairwise(starts)]


def inner(folder, split="train") -> list[int]:
    return [token for sequence in sequences(folder, split) for token in sequence[1:-1]]


def files(folder) -> dict[str, bytes]:
    """All but the note of times and inodes, which no two folders share."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".verified.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


class Killed(BaseException):
    """Nothing in the product catches it, as nothing catches kill -9."""


def begun(corpus, tokenizer, folder, config=SMALL):
    """A preparation that was stopped after some shards."""

    def stop(progress):
        if progress.tokens > 2500:
            raise Killed

    with pytest.raises(Killed):
        prepare(corpus, tokenizer, config, folder, report=stop)
