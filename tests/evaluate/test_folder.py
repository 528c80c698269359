"""Any masked-LM is scored on any text: by bucket, and per word and byte, so that tokenizers compare."""

import math

import pytest
import torch
from grammar import write_corpus
from telling import tells

import bertkit
from bertkit.cli import main
from bertkit.evaluate.config import EvaluateConfig
from bertkit.evaluate.folder import evaluate_folder
from bertkit.model import BertConfig, MaskedLM, TokenTagger, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
SMALL = EvaluateConfig(seq_len=32, words=20)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text.txt", count=30)


def save_flat(folder, corpus, vocab_size: int):
    """A model that finds every token equally likely."""
    tokenizer = train_tokenizer(CorpusConfig(corpus=[str(corpus)]), TokenizerConfig(vocab_size=vocab_size), folder)
    model = MaskedLM(build_encoder(BertConfig(vocab_size=tokenizer.vocab_size, **SIZES), 0), 0)
    with torch.no_grad():
        model.encoder.tokens.weight.zero_()
        model.head.decoder_bias.zero_()
    bertkit.save(model, folder, tokenizer)
    return tokenizer


def test_a_flat_model_has_the_perplexity_of_its_vocabulary_in_every_bucket(corpus, tmp_path):
    size = save_flat(tmp_path, corpus, 90).vocab_size
    scores = evaluate_folder(str(tmp_path), [str(corpus)], SMALL)
    assert scores["perplexity"] == pytest.approx(size, rel=1e-4)
    assert {name: row["loss"] for name, row in scores["buckets"].items()} == {
        name: pytest.approx(math.log(size), rel=1e-4)
        for name in ("masked", "random", "kept", "frequent", "rare", "first_piece", "later_piece")
    }


def test_each_way_to_sort_targets_sorts_all_of_them(corpus, tmp_path):
    save_flat(tmp_path, corpus, 90)
    scores = evaluate_folder(str(tmp_path), [str(corpus)], SMALL)
    count = {name: row["targets"] for name, row in scores["buckets"].items()}
    for ways in (("masked", "random", "kept"), ("frequent", "rare"), ("first_piece", "later_piece")):
        assert sum(count[way] for way in ways) == scores["targets"]


def test_models_with_different_tokenizers_are_asked_for_the_same_words_and_bytes(corpus, tmp_path):
    found = []
    for vocab_size in (70, 120):
        save_flat(tmp_path / str(vocab_size), corpus, vocab_size)
        found.append(evaluate_folder(str(tmp_path / str(vocab_size)), [str(corpus)], SMALL)["pseudo_perplexity"])
    assert [one["num_words"] for one in found] == [20, 20]
    assert found[0]["num_bytes"] == found[1]["num_bytes"]
    for one in found:
        assert one["per_byte"] ** one["num_bytes"] == pytest.approx(one["per_word"] ** one["num_words"], rel=1e-3)


def test_the_same_masks_are_asked_every_time(corpus, tmp_path):
    save_flat(tmp_path, corpus, 90)
    assert evaluate_folder(str(tmp_path), [str(corpus)], SMALL) == evaluate_folder(str(tmp_path), [str(corpus)], SMALL)


def test_what_cannot_be_scored_is_refused_by_name(corpus, tmp_path, capsys):
    tokenizer = save_flat(tmp_path / "lm", corpus, 90)
    config = BertConfig(vocab_size=tokenizer.vocab_size, **SIZES)
    bertkit.save(TokenTagger(build_encoder(config), ["O", "X"]), tmp_path / "tagger", tokenizer)
    bertkit.save(MaskedLM(build_encoder(config)), tmp_path / "odd")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    for words, complaint in (
        ([tmp_path / "tagger", corpus], "text.txt:3 … columns"),
        ([tmp_path / "odd", corpus], "tokenizer"),
        ([tmp_path / "lm", tmp_path / "nothing.txt"], "nothing.txt"),
        ([tmp_path / "lm", empty], "empty.txt"),
    ):
        assert main(["evaluate", *map(str, words)]) == 2
        assert tells(capsys.readouterr().err, complaint)
