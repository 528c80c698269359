"""Fine-tuning learns, from an encoder or from scratch, words or texts."""

import json

import pytest
import torch
from grammar import write_conll
from tuning import SIZES, SMALL, run, scores

import bertkit
from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.model_with_loss import ModelWithLoss, layer_lr_scale
from bertkit.finetune.tasks.tagging import TAGGING
from bertkit.finetune.train import finetune
from bertkit.model import BertConfig, ModernBertConfig, SequenceClassifier, TokenTagger, build_encoder
from bertkit.run.checkpoint import checkpoints
from bertkit.run.optim import build_optimizers
from data_pipelines.vocab.tokenizer import load_tokenizer

torch.set_num_threads(1)


def test_a_run_learns_and_leaves_what_others_rely_on(undisturbed):
    found = scores(undisturbed)
    assert found["dev"]["mean"] > 0.9
    assert found["dev"]["baselines"]["majority tag"]["f1"] == 0
    assert [seed["seed"] for seed in found["seeds"]] == [0, 1]
    assert found["seeds"][0]["dev"].keys() >= {"f1", "strict", "types", "accuracy", "confusions", "worst"}
    lines = [json.loads(line) for line in (undisturbed / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "dev"] == [5, 10, 15, 20]
    assert {path.name for path in undisturbed.iterdir()} >= {"export", "scores.json", "recipe.yaml", "run.json"}
    assert isinstance(bertkit.load(undisturbed), TokenTagger)


def test_without_patience_for_worse_scores_training_ends_early_with_the_best_step(home, tmp_path, capsys):
    changes = ("train.epochs=40", "train.patience=2")
    assert run(home, tmp_path / "run", *changes) == 0
    last = checkpoints(tmp_path / "run" / "seed-0" / "checkpoints")[-1][0]
    assert last < 200
    found = scores(tmp_path / "run")["seeds"][0]
    assert found["step"] < last
    assert "stopped early" in capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run" / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    assert found["dev"]["f1"] == max(line["f1"] for line in lines if line["kind"] == "dev")


def test_a_frozen_encoder_stays_as_it_was(home, tmp_path):
    assert run(home, tmp_path / "run", "model.freeze=true", "train.epochs=1") == 0
    before, after = (bertkit.load(path).encoder.state_dict() for path in (home / "encoder", tmp_path / "run"))
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("config", [BertConfig, ModernBertConfig])
def test_lower_layers_learn_more_slowly(config):
    model = TokenTagger(build_encoder(config(vocab_size=50, **SIZES)), ["a", "b"])
    scale = layer_lr_scale(model, 0.5)
    assert scale("model.head.classifier.weight") == 1.0
    assert scale("model.encoder.layers.1.mlp_in.weight") == 0.5
    assert scale("model.encoder.layers.0.mlp_in.weight") == 0.25
    assert scale("model.encoder.tokens.weight") == 0.125
    recipe = read_finetune_recipe("ner", ["data.train=x", "optim.lr=0.1"])
    groups = build_optimizers(ModelWithLoss(model, TAGGING), recipe.optim, scale)[0].param_groups
    assert {round(group["lr"] / 0.1, 6) for group in groups} == {1.0, 0.5, 0.25, 0.125}


def test_from_scratch_a_tokenizer_is_trained_on_the_sentences(home, tmp_path):
    changes = ("model.init=", "train.epochs=0.2", "data.train_share=0.5")
    assert run(home, tmp_path / "run", *changes) == 0
    assert (tmp_path / "run" / "tokenizer" / "tokenizer.json").is_file()
    assert run(home, tmp_path / "like", "model.init=", f"model.like={home / 'encoder'}", "train.epochs=0.2") == 0
    assert bertkit.load(tmp_path / "like").config.hidden_size == 16


def test_one_sentence_is_enough(home, tmp_path):
    one = write_conll(tmp_path / "one.conll", 1)
    assert run(home, tmp_path / "run", f"data.train={one}", "data.dev=[]", "train.epochs=2") == 0
    assert bertkit.Tagger.load(tmp_path / "run").tag("anna paints").tags


def test_a_text_classifier_shares_everything_but_head_and_reader(home, tmp_path):
    rows = [{"text": f"anna {verb} the house", "label": label} for verb, label in (("paints", "a"), ("forgets", "b"))]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 12))
    modern = tmp_path / "modern"  # a classic encoder needs far longer until its first token sees the others
    tokenizer = load_tokenizer(home / "encoder")
    config = ModernBertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=48, **SIZES)
    bertkit.save(build_encoder(config, 0), modern, tokenizer)
    changes = [f"data.train={path}", f"data.dev={path}", f"model.init={modern}", f"run.dir={tmp_path / 'run'}"]
    assert finetune(read_finetune_recipe("text-classification", [*changes, *SMALL, "train.epochs=10"])) == 0
    assert scores(tmp_path / "run")["seeds"][0]["dev"]["accuracy"] == 1.0
    assert isinstance(bertkit.load(tmp_path / "run"), SequenceClassifier)
    tagger = bertkit.Tagger.load(tmp_path / "run")
    assert tagger.tag("anna forgets the house").tags == ["b"]
    assert tagger.tag("anna forgets the house " * 30).tags == ["b"]
