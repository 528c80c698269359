"""What several files of fine-tuning tests begin with: made once, changed by none."""

from pathlib import Path

import pytest
import torch
from grammar import write_conll, write_corpus
from taggers import LABELS, TAGGER_SIZES
from tuning import SIZES, run

import bertkit
from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.train import finetune
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, TokenTagger, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """Labeled files and an encoder to begin with."""
    folder = tmp_path_factory.mktemp("home")
    write_conll(folder / "train.conll", 40)
    write_conll(folder / "dev.conll", 15, seed=1)
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "text.txt"))])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=120), folder / "encoder")
    config = BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=48, **SIZES)
    bertkit.save(MaskedLM(build_encoder(config, 0), 0), folder / "encoder", tokenizer)
    return folder


@pytest.fixture(scope="session")
def undisturbed(home, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run(home, folder, "run.seeds=[0,1]") == 0
    return folder


@pytest.fixture(scope="session")
def grammar_tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "text.txt"))])
    return train_tokenizer(corpus, TokenizerConfig(vocab_size=150), folder)


@pytest.fixture(scope="session", params=["bert", "modernbert"])
def random_tagger(request, grammar_tokenizer, tmp_path_factory) -> Path:
    """A tagger with random weights, the head's large enough that no two labels tie."""
    config = {"bert": BertConfig, "modernbert": ModernBertConfig}[request.param]
    encoder = build_encoder(
        config(vocab_size=grammar_tokenizer.vocab_size, max_position_embeddings=64, **TAGGER_SIZES), 0
    )
    model = TokenTagger(encoder, LABELS, 0)
    with torch.no_grad():
        model.head.classifier.weight.mul_(50)
    path = tmp_path_factory.mktemp(request.param)
    bertkit.save(model, path, grammar_tokenizer)
    return path


@pytest.fixture(scope="session")
def trained_tagger(grammar_tokenizer, tmp_path_factory) -> Path:
    """A run that has learnt the grammar."""
    home = tmp_path_factory.mktemp("trained")
    config = ModernBertConfig(vocab_size=grammar_tokenizer.vocab_size, max_position_embeddings=64, **TAGGER_SIZES)
    bertkit.save(build_encoder(config, 0), home / "encoder", grammar_tokenizer)
    data = [f"data.train={write_conll(home / 'train.conll', 60)}", f"data.dev={write_conll(home / 'dev.conll', 20, 1)}"]
    small = ["train.epochs=6", "train.global_batch=8", "optim.lr=0.01", f"run.dir={home / 'run'}"]
    assert finetune(read_finetune_recipe("ner", [*data, f"model.init={home / 'encoder'}", *small])) == 0
    return home / "run"
