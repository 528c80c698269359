"""Corpus preparation in megabytes a second, beside the bare `encode_batch_fast` that it needs."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bertkit.bench.generated import generated_documents
from bertkit.bench.measure import Told, announce, compare, interleaved
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer

_AS_SHIPPED = PrepareConfig()
_ONE_SPLIT = PrepareConfig(validation_share=0)
"""All rows in the order of the text, so that ids can be compared."""


def bench_prepare(against: str | None, quick: bool, corpus: str | None = None) -> Iterator[Told]:
    """One row for each kind of tokenizer: all of prepare, text on disk to finished shards, against bare encoding."""
    yield "Theirs: tokenizers' bare encode_batch_fast on the same documents held in memory, nothing written."
    yield "Checked before timing: both give the same ids in the same order."
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "corpus.txt"
        if corpus is None:
            documents = generated_documents(4_000_000 if quick else 32_000_000)
        else:
            documents = [document.text for document in read_documents(CorpusConfig(corpus=[corpus]))]
        text.write_text("\n\n".join(documents), encoding="utf-8")
        megabytes = text.stat().st_size / 1e6
        source = CorpusConfig(corpus=[str(text)])
        documents = [document.text for document in read_documents(source)]
        for kind in ("wordpiece", "bpe"):
            announce(f"prepare {kind}, {megabytes:.0f} MB")
            train_tokenizer(source, TokenizerConfig(kind=kind), folder / kind)
            bare = load_tokenizer(folder / kind).backend
            bare.encode_special_tokens = True  # as ours reads a "[MASK]" that is written in the text
            shards = folder / "shards"

            def ours(config=_AS_SHIPPED, kind=kind, shards=shards):
                shutil.rmtree(shards, ignore_errors=True)
                prepare(source, folder / kind, config, shards)

            def theirs(bare=bare):
                return bare.encode_batch_fast(documents, add_special_tokens=False)

            ours(_ONE_SPLIT)
            bare_ids = np.concatenate([np.array(encoding.ids, np.int64) for encoding in theirs()])
            assert np.array_equal(_ids_without_frames(shards), bare_ids), "both sides must make the same ids"
            del bare_ids
            timings = interleaved({"ours": ours, "theirs": theirs}, rounds=3 if quick else 5)
            yield compare(f"prepare {kind}, {megabytes:.0f} MB", megabytes, "MB/s", timings)


def _ids_without_frames(shards: Path) -> np.ndarray:
    """Every id that came from text, without the [CLS] and [SEP] around each sequence."""
    rows = open_rows(shards)
    gathered = rows.gather(np.arange(len(rows)))
    framed_T = np.zeros(len(gathered.ids_T), bool)
    framed_T[gathered.sequence_starts[:-1]] = framed_T[gathered.sequence_starts[1:] - 1] = True
    return gathered.ids_T[~framed_T]
