"""A corpus format of a user's own (toys/subtitles.py) is read wherever a corpus is."""

import json

from grammar import documents
from runs import Home

TIMES = "{number}\n00:00:01,000 --> 00:00:02,000\n{said}\n"


def write_subtitles(folder):
    folder.mkdir()
    for number, said in enumerate(documents(40)):
        (folder / f"{number}.srt").write_text(TIMES.format(number=number, said=said))
    return folder


def test_a_folder_of_it_is_pretrained_on(bertkit, tmp_path):
    home = Home(write_subtitles(tmp_path / "films"), tmp_path / "cache")
    bertkit("subtitles", *home.argv(tmp_path / "run", "train.steps=2"))
    assert (tmp_path / "run" / "export").is_dir()
    said = bertkit("subtitles", "evaluate", str(tmp_path / "run"), str(tmp_path / "films" / "0.srt"))
    assert "loss" in said


def test_what_it_leaves_out_is_not_learned(bertkit, tmp_path):
    films = write_subtitles(tmp_path / "films")
    out = tmp_path / "tokenizer"
    bertkit("subtitles", "tokenizer", "train", "--corpus", str(films), "--vocab-size", "150", "--out", str(out))
    vocabulary = json.loads((out / "tokenizer.json").read_text())["model"]["vocab"]
    assert {"a", "."} <= vocabulary.keys()
    assert not {"0", "-", ">"} & vocabulary.keys()


def test_without_the_plugin_the_folder_holds_no_text(bertkit, tmp_path):
    home = Home(write_subtitles(tmp_path / "films"), tmp_path / "cache")
    assert str(tmp_path / "films") in bertkit("", *home.argv(tmp_path / "run"), exits=2)


def test_workers_of_an_engine_know_it_too(bertkit, tmp_path):
    films, out = write_subtitles(tmp_path / "films"), tmp_path / "clean"
    cleaning = ["clean", "--corpus", str(films), "--min-words", "1", "--out", str(out)]
    bertkit("subtitles", *cleaning, "--engine", "local", "--parts", "1")
    assert json.loads((out / "clean.json").read_text())["documents"] == 40
