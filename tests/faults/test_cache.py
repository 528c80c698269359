"""What was prepared before is verified before it is trained on, and what is half done is done again."""

import os
import random
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from counts import counts
from damaging import DAMAGES, damage
from grammar import write_corpus
from runs import EVERY, Home, start

from bertkit.cli import main
from bertkit.config.recipe import read_recipe
from bertkit.pretrain.data import open_data
from data_pipelines.rows.manifest import read_manifest
from data_pipelines.rows.shards import FILES, begin_to_verify, verify_rows
from data_pipelines.text import digest


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Home:
    """A text with a cache that was filled once."""
    folder = tmp_path_factory.mktemp("whole")
    home = Home(write_corpus(folder / "text.txt", count=100), folder / "cache")
    read(home)
    return home


def read(home: Home) -> dict:
    _, name, *changes = home.argv(home.cache.parent / "run")
    recipe = read_recipe(name, changes)
    return open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run, loud=False).facts()


@pytest.fixture
def home_to_damage(whole, tmp_path) -> Home:
    shutil.copytree(whole.cache, tmp_path / "cache")
    return Home(whole.corpus, tmp_path / "cache")


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("kind", FILES)
def test_damaged_rows_are_refused(home_to_damage, tried, split, kind):
    """Row 27: each file in each way, naming it; whole again, it is taken."""
    path = next(home_to_damage.cache.glob(f"rows/*/{split}-00000.{kind}"))
    facts, data = read(home_to_damage), path.read_bytes()
    for index, how in enumerate(DAMAGES):
        damage(path, how, random.Random(index))
        with pytest.raises(ValueError, match=rf"{split}-00000\.{kind} is (damaged|missing)"):
            read(home_to_damage)
        path.write_bytes(data)
        tried()
    assert read(home_to_damage) == facts


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "sha256.json"])
def test_a_damaged_tokenizer_is_refused(home_to_damage, tried, name):
    """Row 27: it would make other rows, and other weights, without a word."""
    path = next(home_to_damage.cache.glob(f"tokenizers/*/{name}"))
    data = path.read_bytes()
    for index, how in enumerate(DAMAGES[: 3 if name == "sha256.json" else 5]):
        damage(path, how, random.Random(index))
        with pytest.raises(ValueError, match=r"damaged|missing"):
            read(home_to_damage)
        path.write_bytes(data)
        tried()
    read(home_to_damage)


def test_what_was_noted_of_a_text_is_found_out_again_where_it_is_damaged(home_to_damage, tried):
    """Row 27: the text itself is there to ask."""
    path = next(home_to_damage.cache.glob("texts/*.json"))
    facts, data = read(home_to_damage), path.read_bytes()
    for how in DAMAGES:
        for seed in range(5):
            damage(path, how, random.Random(seed))
            assert read(home_to_damage) == facts
            path.write_bytes(data)
            tried()


@counts(everyday=50, full=3000)
def test_any_bit_of_a_manifest_counts(home_to_damage, tried, count):
    """Row 27: also of what it says about the corpus, which no row depends on."""
    path = next(home_to_damage.cache.glob("rows/*/manifest.json"))
    whole = path.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(whole)), count):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"manifest\.json (is damaged|has format)"):
            read_manifest(path.parent)
        tried()
    path.write_bytes(whole)
    read(home_to_damage)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"])
def test_a_damaged_tokenizer_beside_rows_is_refused(home_to_damage, tried, name):
    """Row 27: as data.prepared reads it."""
    path = next(home_to_damage.cache.glob(f"rows/*/tokenizer/{name}"))
    data = path.read_bytes()
    for index, how in enumerate(DAMAGES):
        damage(path, how, random.Random(index))
        with pytest.raises(ValueError, match=r"damaged|missing|is not"):
            read(home_to_damage)
        path.write_bytes(data)
        tried()
    read(home_to_damage)


def test_rows_are_hashed_while_they_are_written_and_then_only_if_they_were_touched(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("data_pipelines.text.digest.file_hash", lambda path: pytest.fail(f"{path} was read"))
        home = Home(whole.corpus, tmp_path / "cache")
        read(home)
    read(home)
    touched: list[str] = []
    real = digest.file_hash
    monkeypatch.setattr(digest, "file_hash", lambda path: touched.append(path.name) or real(path))
    os.utime(next(home.cache.glob("rows/*/train-00000.words")))
    read(home)
    assert touched == ["train-00000.words"]


def rows_in(home: Home) -> Path:
    """The one folder of rows in a cache; on Python 3.10 a pattern that ends in a slash finds files, too."""
    (folder,) = (path for path in home.cache.glob("rows/*") if path.is_dir())
    return folder


def test_rows_hashed_in_the_background_are_not_read_again(home_to_damage, monkeypatch):
    folder = rows_in(home_to_damage)
    verify_rows(folder)
    files = [path for path in folder.glob("*-0*") if not os.utime(path)]
    hashed: list[str] = []
    real = digest.file_hash
    monkeypatch.setattr(digest, "file_hash", lambda path: hashed.append(path.name) or real(path))
    begin_to_verify(folder)
    verify_rows(folder)
    verify_rows(folder)
    assert sorted(hashed) == sorted(path.name for path in files)


@pytest.mark.parametrize("when", ["before", "after"])
def test_damage_is_told_of_rows_hashed_in_the_background(home_to_damage, tried, when):
    """Row 27: damaged before the thread has hashed them, or afterwards."""
    folder = rows_in(home_to_damage)
    for path in sorted(folder.glob("train-0*")):
        data = path.read_bytes()
        os.utime(path)
        if when == "before":
            damage(path, "bit", random.Random(0))
        begin_to_verify(folder)
        if when == "after":
            damage(path, "bit", random.Random(0))
        with pytest.raises(ValueError, match=f"{path.name} is damaged"):
            verify_rows(folder)
        path.write_bytes(data)
        verify_rows(folder)
        tried()


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_with_damaged_rows_does_not_start(home_to_damage, tmp_path, tried, resumed):
    """Row 27: nor does it resume."""
    folder = tmp_path / "run"
    if resumed:
        home_to_damage.finish(folder, f"train.steps={EVERY}")
        shutil.rmtree(folder / "export")
    damage(next(home_to_damage.cache.glob("rows/*/train-00000.tokens")), "bit", random.Random(0))
    run = home_to_damage.start(folder, f"train.steps={EVERY}")
    assert run.wait() == [2], run.said()
    assert "train-00000.tokens is damaged" in run.said()
    assert not (folder / "export").exists()
    tried()


@pytest.mark.parametrize("stage", ["tokenizer", "rows"])
@pytest.mark.parametrize("change", ["grows", "changes"])
def test_a_text_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, tried, stage, change):
    """Row 33: naming the file; once it is complete, the same command works."""
    home = Home(write_corpus(tmp_path / "text.txt", count=60), tmp_path / "cache")
    module = {"tokenizer": "bertkit.pretrain.data.train_tokenizer", "rows": "data_pipelines.rows.prepare._fill"}[stage]
    where, _, name = module.rpartition(".")
    real = getattr(sys.modules[where], name)

    def while_changing(*arguments, **options):
        done = real(*arguments, **options)
        text = home.corpus.read_text()
        home.corpus.write_text(text + "one more.\n" if change == "grows" else text.replace("the", "The", 1))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(module, while_changing)
        with pytest.raises(ValueError, match=r"text\.txt changed while it was read"):
            read(home)
    read(home)
    tried()


@pytest.mark.parametrize("moment", ["save_weights", "write_layout"])
def test_an_export_that_was_killed_is_done_again_by_the_same_command(undisturbed, tmp_path, tried, moment):
    """Row 39: what it left is not in the way."""
    target = tmp_path / "export"
    argv = ["export", str(undisturbed), str(target)]
    killed = start(argv, log=tmp_path / "log", before=partial(die_within, moment))
    assert killed.wait() == [-signal.SIGKILL], killed.said()
    assert main(argv) == 0
    assert {path.name for path in target.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    tried()


def die_within(name: str) -> None:
    from bertkit.hf import models

    def die(*arguments, **options):
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(models, name, die)
