"""A run resumes only with what it began with, and a model only with what fits it."""

import shutil

import pytest
from grammar import write_conll, write_corpus
from runs import Home, newest
from telling import tells

import bertkit
from bertkit.cli import main
from bertkit.model import BertConfig, MaskedLM, TokenTagger, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("optim.lr=0.5", "optim.lr: 0.003 -> 0.5"),
        ("run.seed=3", "run.seed: 0 -> 3"),
        ("mask.rate=0.4", "mask.rate: 0.3 -> 0.4"),
        ("train.global_batch=16", "train.global_batch: 8 -> 16"),
        ("train.steps=61", "train.steps: 60 -> 61"),
        ("model.hidden_size=32", "model.hidden_size: 64 -> 32"),
        ("data.seq_len=8", "data.seq_len: 16 -> 8"),
        ("tokenizer.vocab_size=150", "tokenizer.vocab_size: 160 -> 150"),
    ],
)
def test_another_recipe_is_refused_by_key(home, at_step_10, tried, capsys, change, named):
    """Row 13: with the old value and the new one."""
    assert main(home.argv(at_step_10, change)) == 2
    assert named in capsys.readouterr().err
    assert newest(at_step_10) == 10
    tried()


def test_another_text_is_refused(home, at_step_10, tmp_path, tried, capsys):
    """Row 13: by what it says, not by where it lies; a run whose corpus only moved resumes."""
    for count, seed in ((101, 0), (100, 1)):
        write_corpus(tmp_path / "text.txt", count, seed)
        assert main(Home(tmp_path / "text.txt", home.cache).argv(at_step_10)) == 2
        assert "the text of data.corpus changed since" in capsys.readouterr().err
        tried()
    assert newest(at_step_10) == 10
    shutil.copy(home.corpus, tmp_path / "text.txt")
    Home(tmp_path / "text.txt", home.cache).finish(at_step_10)
    tried()


def test_another_tokenizer_is_refused(home, tmp_path, tried, capsys):
    """Row 13: one that was given by its folder, and changed in it."""
    tokenizer, folder = tmp_path / "tokenizer", tmp_path / "run"
    corpus = CorpusConfig(corpus=[str(home.corpus)])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=160), tokenizer)
    home.finish(folder, f"tokenizer.path={tokenizer}", "train.steps=5")
    train_tokenizer(corpus, TokenizerConfig(vocab_size=150), tokenizer)
    assert main(home.argv(folder, f"tokenizer.path={tokenizer}", "train.steps=5")) == 2
    assert "the tokenizer changed since" in capsys.readouterr().err
    tried()


def small_model(folder, vocab_size: int, labels: tuple[str, ...] = ()) -> None:
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    encoder = build_encoder(config, 0)
    bertkit.save(TokenTagger(encoder, labels, 0) if labels else MaskedLM(encoder, 0), folder)


def test_a_vocabulary_that_does_not_fit_is_refused_before_step_0(home, tmp_path, tried, capsys):
    """Row 18: by pretraining and fine-tuning, with both sizes."""
    model = tmp_path / "model"
    small_model(model, vocab_size=70)
    corpus = CorpusConfig(corpus=[str(home.corpus)])
    size = train_tokenizer(corpus, TokenizerConfig(vocab_size=120), model).vocab_size
    tagged = write_conll(tmp_path / "train.conll", 5)
    go_on = ["data.seq_len=32", "tokenizer.extend=0", f"data.corpus={home.corpus}", f"data.cache_dir={home.cache}"]
    for verb in (["pretrain", "continued", *go_on], ["finetune", "ner", f"data.train={tagged}", "data.dev="]):
        assert main([*verb, f"model.init={model}", f"run.dir={tmp_path / verb[0]}"]) == 2
        said = capsys.readouterr().err
        assert f"{size} tokens" in said
        assert "knows 70" in said
        assert not (tmp_path / verb[0] / "metrics.jsonl").exists()
        tried()


def test_labels_that_do_not_fit_are_refused_before_step_0(home, tmp_path, tried, capsys):
    """Row 18: a head for other labels than the data has, with both counts and a label of one side only."""
    model = tmp_path / "model"
    corpus = CorpusConfig(corpus=[str(home.corpus)])
    size = train_tokenizer(corpus, TokenizerConfig(vocab_size=120), model).vocab_size
    small_model(model, size, ("O", "B-X", "I-X"))
    tagged = write_conll(tmp_path / "train.conll", 5)
    changes = [f"data.train={tagged}", "data.dev=", f"model.init={model}", f"run.dir={tmp_path / 'run'}"]
    assert main(["finetune", "ner", *changes]) == 2
    said = capsys.readouterr().err
    assert tells(said, "3 labels … 5")
    assert "B-LOC" in said
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    tried()
