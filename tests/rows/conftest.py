"""Fixtures of the tests of preparation."""

import shutil
from pathlib import Path

import pytest
from grammar import write_corpus

from data_pipelines.rows import filling
from data_pipelines.rows import prepare as module
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(module, "_BATCH_TOKENS", 500)
    monkeypatch.setattr(filling, "_WRITTEN_TOKENS", 300)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A corpus and a tokenizer of each kind, made once."""
    folder = tmp_path_factory.mktemp("home")
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "corpus.txt", count=120))])
    for kind in ("wordpiece", "bpe"):
        train_tokenizer(corpus, TokenizerConfig(kind=kind, vocab_size=300), folder / kind)
    return folder


@pytest.fixture
def corpus(home, tmp_path) -> CorpusConfig:
    return CorpusConfig(corpus=[str(shutil.copy(home / "corpus.txt", tmp_path / "corpus.txt"))])


@pytest.fixture
def tokenizer(home) -> Path:
    return home / "wordpiece"
