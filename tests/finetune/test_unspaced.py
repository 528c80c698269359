"""A tagger of a language without spaces splits raw text into words as its training data was split."""

import io
import json
import logging
import random
from pathlib import Path

import pytest
import torch
from taggers import TAGGER_SIZES
from telling import tells

import bertkit
from bertkit.cli import main
from bertkit.finetune.predict.settings import SETTINGS
from bertkit.model import BertConfig, SequenceClassifier, build_encoder
from data_pipelines.vocab.segmenters import SEGMENTERS

torch.set_num_threads(1)
TAGS = {"老师": "N", "学生": "N", "图书馆": "N", "喜欢": "V", "记得": "V", "看": "V", "。": "P"}
RAW = "老师记得图书馆。学生看老师。"
WORDS = ["老师", "记得", "图书馆", "。", "学生", "看", "老师", "。"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("unspaced")
    draw = random.Random(0)
    nouns, verbs = ([word for word, tag in TAGS.items() if tag == kind] for kind in "NV")
    lines = [[draw.choice(nouns), draw.choice(verbs), draw.choice(nouns), "。"] for _ in range(120)]
    text = "\n".join("".join(f"{word}\t{TAGS[word]}\n" for word in words) for words in lines)
    (home / "train.conll").write_text(text)
    data = [f"data.train={home / 'train.conll'}", "data.scheme=plain", f"run.dir={home / 'run'}"]
    small = ["model.like=demo", "train.epochs=1", "train.global_batch=16"]
    assert main(["finetune", "ner", *data, *small]) == 0
    return home / "run"


def test_raw_text_is_split_as_the_training_words_were(run, tmp_path):
    found = bertkit.Tagger.load(run).tag(RAW)
    assert found.words == WORDS
    assert [RAW[start:end] for start, end in found.offsets] == WORDS
    assert main(["export", str(run), str(tmp_path / "copy")]) == 0
    assert bertkit.Tagger.load(tmp_path / "copy").tag(RAW).words == WORDS


def test_a_named_segmenter_takes_the_place_of_the_learned_one(run, tmp_path, capsys):
    pytest.importorskip("jieba")
    (tmp_path / "raw.txt").write_text("我们来到北京\n")
    arguments = ["--model", str(run), "--output", "jsonl", "--segmenter", "jieba"]
    assert main(["tag", *arguments, str(tmp_path / "raw.txt")]) == 0
    assert json.loads(capsys.readouterr().out)["words"] == ["我们", "来到", "北京"]


def test_files_and_standard_input_are_read_in_their_encoding(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "raw.txt").write_bytes(RAW.encode("gb18030"))
    arguments = ["tag", "--model", str(run), "--output", "jsonl", "--encoding", "gb18030"]
    assert main([*arguments, str(tmp_path / "raw.txt")]) == 0
    assert json.loads(capsys.readouterr().out)["words"] == WORDS
    for flags, code in (([], 0), (["--encoding", "utf-8"], 2), (["--encoding", "utf-8", "--errors", "replace"], 0)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(RAW.encode("gb18030"))))
        assert main([*arguments, *flags]) == code
        shown = capsys.readouterr()
        assert code == 0 or "--encoding" in shown.err
    assert main([*arguments, "--encoding", "gb18300"]) == 2
    assert tells(capsys.readouterr().err, "--encoding … gb18030")


def test_a_segmenter_of_your_own_is_a_row_of_the_table(run, monkeypatch):
    monkeypatch.setitem(SEGMENTERS._rows, "characters", lambda: list)
    assert bertkit.Tagger.load(run, segmenter="characters").tag(RAW).words == list(RAW)


def test_a_folder_that_cannot_split_says_so_once(run, tmp_path, caplog):
    copy = tmp_path / "old"
    copy.mkdir()
    for file in (run / "export").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    settings = json.loads((copy / SETTINGS).read_bytes())
    settings["split"] = {"punctuation": False, "hyphens": False, "clitics": False, "together": []}
    (copy / SETTINGS).write_text(json.dumps(settings))
    tagger = bertkit.Tagger.load(copy)
    with caplog.at_level(logging.WARNING):
        assert list(tagger.tag_all(["Anna reads.", RAW, RAW, "老师 看"]))[1].words == [RAW]
    (record,) = caplog.records
    assert RAW in record.getMessage()
    assert "--segmenter" in record.getMessage()


def test_an_unknown_segmenter_is_refused_with_the_nearest(run, capsys):
    assert main(["finetune", "ner", "data.train=x.conll", "data.segmenter=jeiba"]) == 2
    assert "data.segmenter" in capsys.readouterr().err
    assert main(["tag", "--model", str(run), "--segmenter", "jeiba"]) == 2
    assert "'jieba'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def spans(tmp_path_factory) -> Path:
    """A tagger of spans over the same words."""
    home = tmp_path_factory.mktemp("spans")
    draw = random.Random(0)
    names, verbs = ["老师", "图书馆"], ["喜欢", "记得", "看"]
    lines = [[draw.choice(names), draw.choice(verbs), draw.choice(names), "。"] for _ in range(60)]
    tags = ["B-N", "O", "B-N", "O"]
    rows = ("".join(f"{word}\t{tag}\n" for word, tag in zip(line, tags, strict=True)) for line in lines)
    (home / "train.conll").write_text("\n".join(rows))
    data = [f"data.train={home / 'train.conll'}", f"run.dir={home / 'run'}"]
    assert main(["finetune", "ner", *data, "model.like=demo", "train.epochs=2", "train.global_batch=16"]) == 0
    return home / "run"


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("conllu", "a.conllu"),
        ("spans", "a.jsonl"),
        ("doccano", "a.jsonl"),
        ("label-studio", "a.json"),
        ("brat", "a.ann"),
    ],
)
def test_a_tagger_agrees_with_its_own_answers_in_every_form(spans, tmp_path, capsys, form, name):
    """Text without words in a labeled file is split as raw text is."""
    (tmp_path / "a.txt").write_text("老师记得图书馆。\n图书馆看老师。\n")
    assert main(["tag", "--model", str(spans), str(tmp_path / "a.txt"), "--output", form]) == 0
    (tmp_path / name).write_text(capsys.readouterr().out)
    assert main(["evaluate", str(spans), str(tmp_path / name), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gold"], found["f1"], found["accuracy"]) == (4, 1.0, 1.0)


def test_spans_leave_the_parts_of_speech_of_a_file_alone(spans, tmp_path, capsys):
    rows = [f"{number}\t{word}\t_\tX" + "\t_" * 6 for number, word in enumerate(["老师", "看", "图书馆"], start=1)]
    (tmp_path / "a.conllu").write_text("\n".join([*rows, "", ""]))
    assert main(["tag", "--model", str(spans), str(tmp_path / "a.conllu")]) == 0
    cells = [line.split("\t") for line in capsys.readouterr().out.splitlines() if line]
    assert [(row[3], row[9]) for row in cells] == [("X", "NER=B-N"), ("X", "_"), ("X", "NER=B-N")]


def test_a_model_of_whole_texts_refuses_a_segmenter(grammar_tokenizer, tmp_path, capsys):
    config = BertConfig(vocab_size=grammar_tokenizer.vocab_size, max_position_embeddings=64, **TAGGER_SIZES)
    bertkit.save(SequenceClassifier(build_encoder(config, 0), ["a", "b"], 0), tmp_path / "texts", grammar_tokenizer)
    assert main(["tag", "--model", str(tmp_path / "texts"), "--segmenter", "jieba"]) == 2
    assert "jieba" in capsys.readouterr().err
    assert main(["finetune", "text-classification", "data.train=x.jsonl", "data.segmenter=jieba"]) == 2
    assert "data.segmenter" in capsys.readouterr().err
