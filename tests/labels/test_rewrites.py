"""Pairs of texts are read from every format, and made from raw text."""

import gzip
import json

import pytest

from bertkit.cli import main
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.dropping import dropped
from data_pipelines.labels.rewrites import read_rewrites

PLAIN, FEATURES = TaggedConfig(), TaggedConfig(feature_column="features")


def read(path, text, config=PLAIN, **options):
    path.write_text(text, encoding="utf-8")
    return [(pair.words, pair.tags, pair.place()) for pair in read_rewrites(str(path), config, **options)]


def test_tsv_is_read_as_it_stands(tmp_path):
    path = tmp_path / "pairs.tsv"
    text = '"quoted\tso it is"\nplain\ttext\n\n'
    assert read(path, text) == [
        (['"quoted'], ['so it is"'], f"{path}:1"),
        (["plain"], ["text"], f"{path}:2"),
    ]
    headed = "id\ttarget\tsource\n7\tHi.\thi\n"
    assert read(path, headed) == [(["hi"], ["Hi."], f"{path}:2")]
    assert read(path, "source\nsource\n", tagged=False) == [(["source"], None, f"{path}:2")]
    assert read(path, "id\ttext\n7\thi\n", tagged=False) == [(["hi"], None, f"{path}:2")]
    assert read(path, "text\tTexte\n") == [(["text"], ["Texte"], f"{path}:1")], "one name alone is no header"
    with pytest.raises(ValueError, match="'source'"):
        read(path, "source\tsource\ttarget\na\tb\tB\n")
    named = TaggedConfig(columns=["number", "source", "target"])
    assert read(path, "7\thi\tHi.\n", named) == [(["hi"], ["Hi."], f"{path}:1")]


def test_features_are_words_after_the_source(tmp_path):
    path = tmp_path / "forms.tsv.gz"
    path.write_bytes(gzip.compress("Haus\tHäusern\tN;DAT;PL\n".encode()))
    (pair,) = read_rewrites(str(path), FEATURES)
    assert pair.words == ["Haus", "N", "DAT", "PL"]
    assert pair.tags == ["Häusern"]


def test_records_name_source_and_target(tmp_path):
    records = [{"source": "hi", "target": "Hi."}, {"input": "ho", "output": "Ho."}]
    text = "".join(json.dumps(record) + "\n" for record in records)
    found = read(tmp_path / "pairs.jsonl", text)
    assert [pair[:2] for pair in found] == [(["hi"], ["Hi."]), (["ho"], ["Ho."])]
    record = json.dumps({"lemma": "go", "form": "went", "features": ["V", "PST"]})
    assert read(tmp_path / "forms.jsonl", record, FEATURES)[0][:2] == (["go", "V", "PST"], ["went"])
    assert read(tmp_path / "pairs.csv", 'source,target\n"a, b",c\n')[0][:2] == (["a, b"], ["c"])
    assert read(tmp_path / "sources.tsv", "alone\n", tagged=False)[0][:2] == (["alone"], None)


@pytest.mark.parametrize(
    ("name", "text", "config", "said"),
    [
        ("a.tsv", "a\tb\nc\td\te\n", PLAIN, r"a\.tsv:2: 3 columns.*feature_column"),
        ("a.tsv", "a\n", PLAIN, r"a\.tsv:1: .*target.*tag_column"),
        ("a.tsv", "a\tb\n", FEATURES, r"a\.tsv:1: .*features"),
        ("a.tsv", " \tb\n", PLAIN, r"a\.tsv:1: the source is empty"),
        ("a.jsonl", '{"source": 3, "target": "x"}\n', PLAIN, r"a\.jsonl:1: .*source.*3"),
    ],
)
def test_what_is_no_pair_is_refused_with_its_place(name, text, config, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        read(tmp_path / name, text, config)


def test_what_is_dropped():
    text = "Don't stop: Élan costs 3.50!"
    assert dropped(text, ["case"]) == "don't stop: élan costs 3.50!"
    assert dropped(text, ["punctuation"]) == "Dont stop Élan costs 350"
    assert dropped(text, ["accents", "case"]) == "don't stop: elan costs 3.50!"


def test_pairs_are_made_of_raw_text(tmp_path, capsys):
    corpus = tmp_path / "text.txt"
    sentences = [f"Number {index} is here, Anna." for index in range(200)]
    corpus.write_text(f"{' '.join(sentences)}\n{sentences[0]}\n{'Long ' * 60}\n")
    argv = ["pairs", "--corpus", str(corpus), "--drop", "case,punctuation", "--out", str(tmp_path / "pairs")]
    assert main([*argv, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["train"] + facts["dev"] == 200
    assert 0 < facts["dev"] < 40
    assert facts["too_long"] == 1
    lines = [line for name in ("train", "dev") for line in (tmp_path / f"pairs/{name}.tsv").read_text().splitlines()]
    assert sorted(lines) == sorted(f"number {number} is here anna\t{text}" for number, text in enumerate(sentences))
    (tmp_path / "pairs/mine.txt").touch()
    assert main(argv) == 2
    assert main([*argv[:4], "vowels", *argv[5:]]) == 2
    assert "vowels" in capsys.readouterr().err
