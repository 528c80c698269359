"""Text in any encoding is read as what it says; a name that is no encoding is refused with the nearest one."""

import gzip
import io

import pytest
from telling import tells

from bertkit.cli import main
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import read_tagged
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.text.encodings import Utf8Stream, check_encoding

TEXTS = {
    "latin-1": "Füße\n\nßé",
    "gb18030": "汉字，文本\n\n㐀𠀀",
    "utf-16": "汉字\n\nÄ",
    "cp1252": "“so”\n\n€",
    "big5": "漢字\n\n中",
}


def documents(path, **settings) -> list[str]:
    return [document.text for document in read_documents(CorpusConfig(corpus=[str(path)], **settings))]


@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_corpus_is_read_in_its_encoding(encoding, packed, tmp_path):
    path = tmp_path / ("text.txt.gz" if packed else "text.txt")
    data = TEXTS[encoding].encode(encoding)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert documents(path, encoding=encoding) == TEXTS[encoding].split("\n\n")


@pytest.mark.parametrize(
    ("name", "text"), [("x.jsonl", '{"text": "汉字"}\n'), ("x.csv", "text\n汉字\n"), ("x.txt", "\ufeff汉字\r\n")]
)
def test_every_format_of_text_is_read_in_its_encoding(name, text, tmp_path):
    (tmp_path / name).write_bytes(text.encode("gb18030"))
    assert documents(tmp_path / name, encoding="gb18030") == ["汉字"]


def test_labeled_files_are_read_in_their_encoding(tmp_path):
    (tmp_path / "x.conll").write_bytes("汉字\tN\n".encode("gb18030"))
    (sentence,) = read_tagged(str(tmp_path / "x.conll"), TaggedConfig(encoding="gb18030"))
    assert (sentence.words, sentence.tags) == (["汉字"], ["N"])


@pytest.mark.parametrize("size", [1, 2, 3, 64])
def test_characters_are_whole_wherever_a_read_ends(size):
    text = "汉字a㐀\n𠀀" * 9
    stream = Utf8Stream(io.BytesIO(text.encode("gb18030")), "gb18030", "strict", "x")
    assert b"".join(iter(lambda: stream.read(size), b"")).decode() == text


def test_bytes_of_another_encoding_are_named_or_replaced(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("一\n二\n".encode("gb18030") + b"\xff\n")
    with pytest.raises(ValueError, match=r"text.txt:3: not gb18030 \(byte 0xff\).*encoding"):
        documents(path, encoding="gb18030")
    assert documents(path, encoding="gb18030", errors="replace") == ["一\n二\n\ufffd"]
    with pytest.raises(ValueError, match=r"text.txt:2: not UTF-8.*data\.encoding"):
        documents(path)
    path.write_bytes("一".encode("gb18030")[:1])  # half a character at the end
    with pytest.raises(ValueError, match=r"text\.txt:1"):
        documents(path, encoding="gb18030")


@pytest.mark.parametrize(("name", "near"), [("latin1x", "latin1"), ("gb18300", "gb18030"), ("hex", ""), ("x\0", "")])
def test_an_unknown_encoding_is_refused_with_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"encoding.*{near}"):
        check_encoding(name)


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "demo", "data.corpus=x.txt", "data.encoding=gb18300"],
        ["finetune", "ner", "data.train=x.conll", "data.encoding=gb18300"],
        ["evaluate", "nowhere", "x.txt", "--encoding", "gb18300"],
        ["tokenizer", "train", "--corpus", "x.txt", "--out", "y", "--encoding", "gb18300"],
    ],
)
def test_every_verb_refuses_it_by_its_key(words, capsys):
    assert main(words) == 2
    key = "--encoding" if "--encoding" in words else "data.encoding"
    assert tells(capsys.readouterr().err, f"{key} … gb18300 … gb18030")


def test_what_was_prepared_before_the_key_is_still_known():
    assert "encoding" not in CorpusConfig(corpus=["x"]).options()
    assert CorpusConfig(corpus=["x"], encoding="latin-1").options()["encoding"] == "latin-1"
