"""Pseudo-perplexity asks for every piece once, hides the rest of its word, and counts the words of the text."""

import json
import math

import pytest
import torch
from grammar import write_corpus

import bertkit
from bertkit.cli import main
from bertkit.evaluate.pseudo_likelihood import Sentence
from bertkit.evaluate.pseudo_perplexity import pseudo_perplexity, windows
from bertkit.model import BertConfig, MaskedLM, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)
CPU = torch.device("cpu")
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text.txt", count=30)


@pytest.fixture(scope="module")
def tokenizer(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    return train_tokenizer(CorpusConfig(corpus=[str(corpus)]), TokenizerConfig(vocab_size=90), folder)


def flat_model(vocab_size: int) -> MaskedLM:
    """A model that finds every token equally likely."""
    model = MaskedLM(build_encoder(BertConfig(vocab_size=vocab_size, **SIZES), 0), 0).eval()
    with torch.no_grad():
        model.encoder.tokens.weight.zero_()
        model.head.decoder_bias.zero_()
    return model


def test_a_flat_model_is_surprised_by_the_vocabulary_size_at_every_piece(tokenizer):
    text = "anna paints the old house near the station."
    found = pseudo_perplexity(
        flat_model(tokenizer.vocab_size).target_logits, CPU, tokenizer, [text], max_words=100, seq_len=32
    )
    pieces = len(tokenizer.backend.encode(text, add_special_tokens=False).ids)
    nats = pieces * math.log(tokenizer.vocab_size)
    assert (found.num_words, found.num_bytes) == (8, len(text))
    assert found.per_word == pytest.approx(math.exp(nats / 8), rel=1e-4)
    assert found.per_byte == pytest.approx(math.exp(nats / len(text)), rel=1e-4)
    assert found.bits_per_byte == pytest.approx(nats / len(text) / math.log(2), rel=1e-4)


def test_only_so_many_words_are_scored(tokenizer):
    texts = ["anna paints the house."] * 50
    assert (
        pseudo_perplexity(flat_model(90).target_logits, CPU, tokenizer, texts, max_words=10, seq_len=32).num_words == 10
    )


def test_windows_are_cut_between_words_and_lose_nothing():
    ids = tuple(range(10))
    cut = windows(Sentence(ids, (0, 0, 1, 1, 1, 2, 3, 3, 3, 3)), 4)
    assert [stretch.ids for stretch in cut] == [(0, 1), (2, 3, 4, 5), (6, 7, 8, 9)]
    assert [stretch.ids for stretch in windows(Sentence(ids, (0,) * 10), 4)] == [ids[:4], ids[4:8], ids[8:]]


def test_the_verb_scores_a_folder(corpus, tokenizer, tmp_path, capsys):
    model = MaskedLM(build_encoder(BertConfig(vocab_size=tokenizer.vocab_size, **SIZES), 0), 0)
    bertkit.save(model, tmp_path / "run" / "export", tokenizer)
    flags = ["--seq-len", "32", "--words", "20", "--json"]
    assert main(["evaluate", str(tmp_path / "run"), str(corpus), *flags]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["loss"] == pytest.approx(math.log(tokenizer.vocab_size), rel=0.1)
    assert scores["pseudo_perplexity"]["num_words"] == 20
    assert main(["evaluate", str(tmp_path / "run"), str(corpus), "--seq-len", "32", "--words", "20"]) == 0
    assert "per word" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run"), str(corpus), "--mask-rate", "3"]) == 2
    assert "--mask-rate must be in (0, 1)" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "nothing"), str(corpus)]) == 2
