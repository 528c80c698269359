"""Every shipped recipe says what it is for, builds, and runs a step when shrunk."""

import dataclasses
from functools import partial
from pathlib import Path

import pytest
import torch
from grammar import write_corpus
from small_model import save_small_model

import bertkit
from bertkit.config.recipe import read_recipe, shipped_recipes, to_yaml
from bertkit.model import MaskedLM
from bertkit.pretrain.train import pretrain

torch.set_num_threads(1)
RECIPES = sorted(shipped_recipes())
EXPECTED = {
    *("demo", "bert-tiny", "bert-mini", "bert-small", "bert-base", "modernbert-mini", "modernbert-base"),
    *("roberta-style", "chinese-whole-word", "chinese-modern", "continued"),
}
CHINESE = (
    "我们在北京的大学学习自然语言处理。今天的天气很好，我们去公园散步。\n\n他喜欢读书，也喜欢音乐和电影。\n\n" * 20
)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("corpora")
    chinese = folder / "chinese.txt"
    chinese.write_text(CHINESE, encoding="utf-8")
    return {"english": write_corpus(folder / "english.txt", count=40), "chinese": chinese}


@pytest.fixture(scope="module")
def published(corpora, tmp_path_factory) -> Path:
    """A small model folder to go on from, trained on nothing yet."""
    folder = tmp_path_factory.mktemp("published")
    return save_small_model(folder, corpora["english"], vocab_size=80, positions=64)


def test_the_shipped_recipes_are_those_promised():
    assert set(RECIPES) >= EXPECTED
    assert not {"ddp", "fsdp", "two-nodes"} & set(RECIPES)


@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"continued"}))
def test_a_recipe_in_half_precision_is_one_for_the_kernel_of_gpus(name):
    """Which has no dropout on attention weights; without it, sequences would be computed one by one."""
    recipe = read_recipe(name, ["data.corpus=corpus.txt"])
    dropouts = {vars(recipe.model).get(key, 0.0) for key in ("attention_probs_dropout_prob", "attention_dropout")}
    assert recipe.train.precision == "fp32" or dropouts == {0.0}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_what_it_is_for_what_it_needs_and_how_long_it_takes(name):
    first = shipped_recipes()[name].read_text().splitlines()[:3]
    assert all(line.startswith("# ") and len(line) <= 118 for line in first), first
    assert first[1].startswith("# Needs ")
    assert first[2].startswith("# Takes ")


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_and_prints_itself(name, tmp_path):
    changes = ["data.corpus=x.txt", *(["model.init=folder"] if name == "continued" else [])]
    recipe = read_recipe(name, changes)
    path = tmp_path / "printed.yaml"
    path.write_text(to_yaml(recipe))
    assert read_recipe(str(path)) == recipe


def test_whole_chinese_words_are_masked_for_both_encoders():
    classic, modern = (read_recipe(name, ["data.corpus=x.txt"]) for name in ("chinese-whole-word", "chinese-modern"))
    assert (classic.model.architecture, modern.model.architecture) == ("bert", "modernbert")
    for recipe in (classic, modern):
        assert (recipe.data.segmenter, recipe.mask.unit, recipe.train.minutes) == ("jieba", "word", 10)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_runs_one_step_when_shrunk(name, corpora, published, tmp_path, monkeypatch):
    """Those that compile are traced, forward and backward, and no machine code is made of them."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    changes = ["data.corpus=x.txt", *([f"model.init={published}"] if name == "continued" else [])]
    recipe = read_recipe(name, changes)
    chinese = recipe.data.segmenter == "jieba"
    if chinese:
        pytest.importorskip("jieba")
    model = recipe.model
    if model.init is None:
        heads = {"num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
        model = dataclasses.replace(model, **heads)
    train = dataclasses.replace(
        recipe.train,
        steps=1,
        tokens=None,
        minutes=None,
        first_batch=None,
        global_batch=4,
        micro_batch=2,
        precision="fp32",
    )
    shrunk = dataclasses.replace(
        recipe,
        data=dataclasses.replace(recipe.data, corpus=[str(corpora["chinese" if chinese else "english"])], seq_len=32),
        tokenizer=dataclasses.replace(recipe.tokenizer, vocab_size=300, extend=min(recipe.tokenizer.extend, 5)),
        model=model,
        train=train,
        run=dataclasses.replace(recipe.run, dir=str(tmp_path / "run"), num_workers=0),
    )
    assert pretrain(shrunk) == 0
    assert isinstance(bertkit.load(tmp_path / "run" / "export"), MaskedLM)


def test_a_wheel_finds_its_recipes_inside_the_package(tmp_path, monkeypatch):
    (tmp_path / "bertkit" / "recipes").mkdir(parents=True)
    (tmp_path / "bertkit" / "recipes" / "mine.yaml").write_text("# mine\n")
    monkeypatch.setattr("bertkit.config.recipe._PACKAGE", tmp_path / "bertkit")
    assert list(shipped_recipes()) == ["mine"]
