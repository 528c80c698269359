"""Minimal pairs are read as benchmarks publish them; whatever is wrong is told with its file and line."""

import gzip
import json

import pytest

from bertkit.evaluate.config import PairKeys
from bertkit.evaluate.minimal_pairs import read_pairs

BLIMP = {
    "sentence_good": "a cat sleeps",
    "sentence_bad": "a cat sleep",
    "UID": "agreement",
    "linguistics_term": "verbs",
}
SLING = {
    "sentence_good": "他来了",
    "sentence_bad": "来他了",
    "phenomenon": "Order",
    "paradigm": "subject",
    "pair_ID": 0,
}
ZHO = {"sentence_good": "他来了", "sentence_bad": "来他了", "phenomenon": "Order", "UID": "subject"}


def write(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def only(*sources, **keys):
    (pair,) = read_pairs([str(source) for source in sources], PairKeys(**keys))
    return pair


@pytest.mark.parametrize(
    ("record", "paradigm", "group"),
    [(BLIMP, "agreement", "verbs"), (SLING, "subject", "Order"), (ZHO, "subject", "Order")],
)
def test_json_lines_of_the_benchmarks(tmp_path, record, paradigm, group):
    pair = only(write(tmp_path / "pairs.jsonl", record))
    assert (pair.good, pair.bad) == (record["sentence_good"], record["sentence_bad"])
    assert (pair.paradigm, pair.group, pair.place) == (paradigm, group, f"{tmp_path}/pairs.jsonl:1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("agreement.tsv", "a cat sleeps\ta cat sleep\n"),
        ("any.tsv", "a cat sleeps\ta cat sleep\tagreement\tverbs\n"),
        ("any.tsv", "UID\tbad\tgood\nagreement\ta cat sleep\ta cat sleeps\n"),
        ("any.csv", 'grammatical,ungrammatical,paradigm\n"a cat sleeps","a cat sleep",agreement\n'),
        ("agreement.txt", "a cat sleeps@@@a cat sleep\n\n"),
    ],
)
def test_columns_with_names_and_without(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    pair = only(tmp_path / name)
    assert (pair.good, pair.bad, pair.paradigm) == ("a cat sleeps", "a cat sleep", "agreement")


def test_folders_gzip_and_keys_of_ones_own(tmp_path):
    write(tmp_path / "all" / "one" / "first.jsonl", {"correct": "x y", "wrong": "y x"})
    (tmp_path / "all" / "second.jsonl.gz").write_bytes(gzip.compress(b'{"correct": "p q", "wrong": "q p"}\n'))
    (tmp_path / "all" / "README.md").write_text("no pair\n")
    sources = [str(tmp_path / "all"), str(tmp_path / "all" / "one" / "*.jsonl")]
    pairs = read_pairs(sources, PairKeys(good="correct", bad="wrong"))
    assert [(pair.paradigm, pair.good) for pair in pairs] == [("first", "x y"), ("second", "p q")]


def test_the_first_pairs_of_each_paradigm(tmp_path):
    path = write(tmp_path / "pairs.jsonl", *[BLIMP | {"UID": name} for name in "aabab"])
    assert [pair.paradigm for pair in read_pairs([str(path)], PairKeys(), max_pairs=1)] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("p.jsonl", '{"sentence_good": "a b"}\n', ["p.jsonl:1", "sentence_bad", "--bad"]),
        ("p.jsonl", '\n{"good": "a", "bad": ""}\n', ["p.jsonl:2", "--bad"]),
        ("p.jsonl", "[1]\n", ["p.jsonl:1", "object"]),
        ("p.jsonl", "{\n", ["p.jsonl:1", "JSON"]),
        ("p.tsv", "a b\tb a\nalone\n", ["p.tsv:2", "--bad"]),
        ("p.txt", "", ["no pairs", "p.txt"]),
    ],
)
def test_what_is_no_pair_is_told_with_its_line(tmp_path, name, text, told):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError) as error:
        read_pairs([str(tmp_path / name)], PairKeys())
    assert all(word in str(error.value) for word in told)


def test_places_without_pairs_are_refused(tmp_path):
    for place in (tmp_path, tmp_path / "nothing.jsonl"):
        with pytest.raises(ValueError, match=tmp_path.name):
            read_pairs([str(place)], PairKeys())
