"""A labeled file is read, repaired as documented, or refused with file and line; no word is lost."""

import pytest
from grammar import write_conll
from telling import tells

from bertkit.cli import main
from bertkit.config.finetune import LabeledSection
from bertkit.finetune.tasks.tagging import TAGGING
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import read_tagged

GOOD = b"anna\tB-PER\npaints\tO\n\nboris\tB-PER\n"
REFUSED = {
    "a column too many": ("bad.conll", b"anna\tB-PER\npaints\tO\tX\n", "bad.conll:2: 3 columns … line 1 … 2"),
    "a column too few": ("bad.conll", b"anna\tB-PER\npaints\n", "bad.conll:2: 1 column … line 1 … 2"),
    "one column": ("bad.conll", b"anna\npaints\n", "bad.conll:1: … tag_column"),
    "no tag": ("bad.conll", b"anna\tB-PER\npaints\t\n", "bad.conll:2: the tag is empty"),
    "another column": ("bad.conllu", b"1\tanna\n", "bad.conllu:1: 2 columns … 10"),
    "no number": ("bad.conllu", b"x" + b"\t_" * 9 + b"\n", "bad.conllu:1: … 'x'"),
    "invalid UTF-8": ("bad.conll", b"anna\tO\n\xff\tO\n", "bad.conll:2: not UTF-8"),
    "NUL": ("bad.conll", b"anna\tO\na\0b\tO\n", "bad.conll:2: a NUL character"),
    "nothing": ("bad.conll", b"", "holds no labeled sentence"),
    "only blanks": ("bad.conll", b"\n\n \n", "holds no labeled sentence"),
    "not JSON": ("bad.jsonl", b'{"tokens": ["a"], "tags": ["O"]}\n{', "bad.jsonl:2: not JSON"),
    "a list": ("bad.jsonl", b"[1]\n", "bad.jsonl:1: expected an object"),
    "too few tags": ("bad.jsonl", b'{"tokens": ["a", "b"], "tags": ["O"]}\n', "bad.jsonl:1: 2 words … 1"),
    "a word that is none": ("bad.jsonl", b'{"tokens": [1], "tags": ["O"]}\n', "bad.jsonl:1: … word … 1"),
    "a span outside": (
        "bad.jsonl",
        b'{"text": "anna", "spans": [[2, 9, "PER"]]}\n',
        "bad.jsonl:1: … {start, end, label}",
    ),
    "spans that are none": ("bad.jsonl", b'{"text": "anna", "spans": 7}\n', "bad.jsonl:1: "),
}


EMPTY_WORDS = {
    "no word": ("bad.conll", b"anna\tB-PER\n\tO\n", "bad.conll:2: the word is empty"),
    "no form": ("bad.conllu", b"1\t" + b"\t_" * 8 + b"\n", "bad.conllu:1: the word is empty"),
    "no token": ("bad.jsonl", b'{"tokens": ["anna", ""], "tags": ["O", "O"]}\n', "bad.jsonl:1: the word is empty"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("part", ["train", "dev"])
def test_a_malformed_file_is_refused_with_its_place(tmp_path, tried, capsys, case, part):
    """Row 16: with exit code 2, in one line, as training data and as dev data."""
    assert_refused(tmp_path, capsys, part, *REFUSED[case])
    tried()


@pytest.mark.parametrize("case", EMPTY_WORDS)
@pytest.mark.parametrize("part", ["train", "dev"])
def test_an_empty_word_is_refused_with_its_place(tmp_path, tried, capsys, case, part):
    """Row 37: in every form of file; it would be a tag without a word."""
    assert_refused(tmp_path, capsys, part, *EMPTY_WORDS[case])
    tried()


def assert_refused(tmp_path, capsys, part: str, name: str, data: bytes, complaint: str) -> None:
    (tmp_path / name).write_bytes(data)
    (tmp_path / "good.conll").write_bytes(GOOD)
    files = {"train": "good.conll", "dev": "good.conll"} | {part: name}
    changes = [f"data.{part}={tmp_path / file}" for part, file in files.items()]
    assert main(["finetune", "ner", *changes, f"run.dir={tmp_path / 'run'}"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1, said
    assert tells(said[0], complaint)
    assert not (tmp_path / "run").exists()


def labeled(tmp_path, train: bytes, dev: bytes = b""):
    (tmp_path / "train.conll").write_bytes(train)
    (tmp_path / "dev.conll").write_bytes(dev)
    files = {"train": [str(tmp_path / "train.conll")], "dev": [str(tmp_path / "dev.conll")] if dev else []}
    return TAGGING.read(LabeledSection(**files))


def test_what_can_be_repaired_is_repaired_and_said(tmp_path, tried):
    """Row 16: an I- that goes on nothing, a label that only dev knows, a missing blank line at the end."""
    stray = labeled(tmp_path, b"anna\tB-PER\n\nthe\tO\nriver\tI-LOC\nbank\tI-LOC\n")
    assert stray.train[1].tags == ["O", "B-LOC", "I-LOC"]
    assert any("1 I- tags continue no span and were read as B-, the first in" in note for note in stray.notes)
    assert any("train.conll:4" in note for note in stray.notes)
    tried()
    unknown = labeled(tmp_path, GOOD, b"rome\tB-LOC\n")
    assert unknown.dev[0].tags == ["B-LOC"]
    assert any(tells(note, "dev.conll:1: … 'B-LOC' (1") for note in unknown.notes)
    tried()
    for end in (b"", b"\n", b"\r\n", b"\n\n\n"):
        read = labeled(tmp_path, GOOD.rstrip(b"\n") + end)
        assert [sentence.words for sentence in read.train] == [["anna", "paints"], ["boris"]]
        tried()


def test_a_sentence_of_ten_thousand_words_is_read_whole(tmp_path, tried):
    """Row 16: nothing is cut; that every word also gets a tag is a test of the tagger."""
    write_conll(tmp_path / "good.conll", 3)
    words = "".join(f"word{index}\tO\n" for index in range(10_000))
    (tmp_path / "long.conll").write_text(words)
    (sentence,) = read_tagged(str(tmp_path / "long.conll"), TaggedConfig())
    assert len(sentence.words) == len(sentence.tags or ()) == 10_000
    assert sentence.place(9_999).endswith(":10000")
    tried()
