"""Recipes for fine-tuning, and what is refused before training."""

import pytest
import torch
from telling import tells
from tuning import SIZES, arguments, run

import bertkit
from bertkit.cli import main
from bertkit.config.finetune import read_finetune_recipe
from bertkit.config.recipe import read_recipe, shipped_recipes, to_yaml
from bertkit.finetune.train import finetune
from bertkit.model import BertConfig, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("verb", "recipe", "complaint"),
    [
        ("finetune", "bert-mini", "bert-mini … `bertkit pretrain` … `bertkit finetune`"),
        ("pretrain", "ner", "ner … `bertkit finetune` … `bertkit pretrain`"),
        ("finetune", "nerr", "'nerr' … 'ner'"),
    ],
)
def test_recipes_of_the_two_verbs_are_not_confused(verb, recipe, complaint, capsys, tmp_path):
    assert main([verb, recipe, "data.train=x", f"run.dir={tmp_path / 'run'}"]) == 2
    assert tells(capsys.readouterr().err, complaint)


def test_a_recipe_of_ones_own_says_its_task(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("data: {train: x}\n")
    with pytest.raises(ValueError, match="`bertkit pretrain`"):
        read_finetune_recipe(str(path))
    path.write_text("base: ner\ndata: {train: x}\n")
    assert read_finetune_recipe(str(path)).task == "tagging"
    with pytest.raises(ValueError, match="`bertkit finetune`"):
        read_recipe(str(path))


@pytest.mark.parametrize("name", sorted(shipped_recipes("finetune")))
def test_a_shipped_recipe_says_what_it_is_for_and_prints_itself(name, tmp_path):
    first = shipped_recipes("finetune")[name].read_text().splitlines()[:3]
    assert all(line.startswith("# ") and len(line) <= 118 for line in first)
    assert first[1].startswith("# Needs ")
    assert first[2].startswith("# Takes ")
    recipe = read_finetune_recipe(name, ["data.train=x"])
    (tmp_path / "printed.yaml").write_text(to_yaml(recipe))
    assert read_finetune_recipe(str(tmp_path / "printed.yaml")) == recipe


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["data.train=nowhere.conll"], "there is no file 'nowhere.conll'"),
        (["data.train_share=0"], "data.train_share … (0, 1] … 0"),
        (["run.seeds=[1,1]"], "run.seeds … distinct"),
        (["optim.layer_decay=2"], "optim.layer_decay … (0, 1]"),
        (["data.tag_colum=3"], "'data.tag_colum' … 'data.tag_column'"),
        (["data.scheme=iob2", "data.tag_column=2"], "iob2"),
        (["train.adapt_steps=2", "train.adapt_minutes=1"], "adapt_minutes"),
        (["train.adapt_steps=2", "model.init="], "model.init"),
        (["train.token_dropout=1"], "train.token_dropout … [0, 1)"),
        (["train.token_dropout=0.1", "task=rewrite"], "train.token_dropout … rewrite"),
    ],
)
def test_a_mistake_is_one_line_and_exit_two(home, tmp_path, changes, complaint, capsys):
    assert main(["finetune", *arguments(home, tmp_path / "run", *changes)]) == 2
    said = capsys.readouterr().err
    assert tells(said, complaint)
    assert "Traceback" not in said


def test_labels_that_do_not_fit_the_head_are_refused_with_both_sizes(undisturbed, home, tmp_path):
    other = tmp_path / "other.conll"
    other.write_text("rome\tX\tB-CITY\nis\tX\tO\n")
    with pytest.raises(ValueError, match=r"5 labels.* 3"):
        run(home, tmp_path / "run", f"model.init={undisturbed}", f"data.train={other}")
    assert not (tmp_path / "run").exists()


def test_a_head_of_another_task_is_told_before_any_label_is_read(undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr("bertkit.finetune.tasks.classification.read_parts", lambda *_: pytest.fail("labels were read"))
    (tmp_path / "x.jsonl").write_text('{"text": "anna paints", "label": "art"}\n')
    changes = [f"data.train={tmp_path / 'x.jsonl'}", f"model.init={undisturbed}", f"run.dir={tmp_path / 'run'}"]
    with pytest.raises(ValueError, match=r"holds a TokenTagger, but .* or a SequenceClassifier is needed"):
        finetune(read_finetune_recipe("text-classification", changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["init", "like"])
def test_a_vocabulary_that_does_not_fit_the_model_is_told_before_any_label_is_read(home, tmp_path, key, monkeypatch):
    monkeypatch.setattr("bertkit.finetune.tasks.tagging.read_parts", lambda *_: pytest.fail("labels were read"))
    tokenizer = train_tokenizer(
        CorpusConfig(corpus=[str(home / "text.txt")]), TokenizerConfig(vocab_size=120), tmp_path / "odd"
    )
    bertkit.save(build_encoder(BertConfig(vocab_size=50, max_position_embeddings=48, **SIZES), 0), tmp_path / "odd")
    with pytest.raises(ValueError, match=rf"{tokenizer.vocab_size} tokens.* 50"):
        run(home, tmp_path / "run", "model.init=", f"model.{key}={tmp_path / 'odd'}")
