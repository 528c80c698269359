"""Every format, plain and gzipped, gives the same documents; whatever is wrong with a file is told with its line."""

import gzip
import io
import json
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telling import tells
from text_files import encoded

from data_pipelines.text import lines, readers
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.lines import BLOCK_BYTES
from data_pipelines.text.readers import MAX_CHARS, read_text, reader_of
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

TEXTS = ["plain words", 'with "quotes", commas\nand a second line', "Größe 北京 😀", "x"]


def pieces(path: Path, **options):
    config = CorpusConfig(corpus=[str(path)], **options)
    return list(reader_of(path)(path, config))


def texts(path: Path, **options) -> list[str]:
    return [piece.text for piece in pieces(path, **options)]


def complaint(path: Path, **options) -> str:
    with pytest.raises(ValueError) as caught:
        pieces(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".parquet"])
def test_every_format_holds_the_same_documents(tmp_path, suffix, packed):
    path = written(tmp_path / f"corpus{suffix}{packed}", encoded(suffix, TEXTS))
    assert texts(path) == TEXTS
    assert not any(piece.continued for piece in pieces(path))


def test_documents_end_at_blank_lines_or_at_every_line(tmp_path):
    path = written(tmp_path / "corpus.txt", b"\n\none\ntwo\n \t\n\nthree\n")
    assert [(piece.text, piece.place) for piece in pieces(path)] == [
        ("one\ntwo", f"{path}:3"),
        ("three", f"{path}:7"),
    ]
    assert [(piece.text, piece.place) for piece in pieces(path, documents="line")] == [
        ("one", f"{path}:3"),
        ("two", f"{path}:4"),
        ("three", f"{path}:7"),
    ]


def test_another_field_is_read_on_request(tmp_path):
    path = written(tmp_path / "corpus.jsonl", b'{"body": "here", "text": "not here"}\n')
    assert texts(path, field="body") == ["here"]


@given(st.lists(st.sampled_from(["a", "bé", "", " ", "北"]), max_size=8), st.sampled_from(["\r\n", "\r"]))
@settings(deadline=None, max_examples=30)
def test_every_kind_of_line_break_is_the_same(tmp_path_factory, lines, line_break):
    folder = tmp_path_factory.mktemp("breaks")
    plain = written(folder / "lf.txt", "\n".join(lines).encode())
    other = written(folder / "other.txt", line_break.join(lines).encode())
    for documents in ("blank-line", "line"):
        expected, got = pieces(plain, documents=documents), pieces(other, documents=documents)
        assert [piece.text for piece in got] == [piece.text for piece in expected]
        assert [piece.place.rsplit(":")[-1] for piece in got] == [piece.place.rsplit(":")[-1] for piece in expected]


def test_line_breaks_inside_a_field_are_line_feeds(tmp_path):
    for suffix in (".jsonl", ".csv", ".parquet"):
        assert texts(written(tmp_path / f"c{suffix}", encoded(suffix, ["a\r\nb\rc"]))) == ["a\nb\nc"]


def test_a_byte_order_mark_is_no_text(tmp_path):
    for suffix in (".txt", ".jsonl", ".csv"):
        path = written(tmp_path / f"corpus{suffix}", b"\xef\xbb\xbf" + encoded(suffix, TEXTS))
        assert texts(path) == TEXTS


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\t\r\n\n", b"\xef\xbb\xbf"])
def test_a_file_without_text_has_no_documents(tmp_path, data):
    for name in ("corpus.txt", "corpus.txt.gz", "corpus.jsonl"):
        assert texts(written(tmp_path / name, data)) == []


@pytest.mark.parametrize(("bad", "what"), [(b"\xff", "not UTF-8 (byte 0xff)"), (b"\0", "NUL"), (b"\xe5\x8c", "0xe5")])
@pytest.mark.parametrize("line_break", [b"\n", b"\r\n", b"\r"])
def test_a_bad_byte_is_told_with_its_line_in_any_block(tmp_path, bad, what, line_break):
    line = "北京 is a city ".encode() * 10 + line_break
    for number in (1, 3, 5 * BLOCK_BYTES // 2 // len(line)):
        path = written(tmp_path / "corpus.txt", line * (number - 1) + b"so " + bad + b" on" + line_break + line * 50)
        message = complaint(path)
        assert message.startswith(f"{path}:{number}: ")
        assert what in message
        assert "errors=replace" in message
        with_replacement = texts(path, errors="replace", documents="line")
        assert with_replacement[number - 1] == "so \ufffd on"
        assert len(with_replacement) == number + 50


def test_a_bad_byte_in_a_field_is_told_with_its_line(tmp_path):
    for name, data, place in [
        ("c.jsonl", b'{"text": "ok"}\n{"text": "\\ud83d"}\n', 2),
        ("c.jsonl", b'{"text": "ok"}\n{"text": "\\u0000"}\n', 2),
        ("c.jsonl", b'{"text": "ok"}\n{"text": "\xff"}\n', 2),
        ("c.csv", b"text\nok\n\xff\n", 3),
    ]:
        path = written(tmp_path / name, data)
        assert complaint(path).startswith(f"{path}:{place}: ")
        assert "\ufffd" in texts(path, errors="replace")[1]


def test_a_bad_byte_in_a_table_is_told_with_its_row(tmp_path):
    column = pyarrow.array([b"ok", b"\xff"], pyarrow.binary()).view(pyarrow.string())
    path = tmp_path / "corpus.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), path)
    assert complaint(path).startswith(f"{path}:row 2: not UTF-8")
    assert texts(path, errors="replace") == ["ok", "\ufffd"]


@given(st.lists(st.sampled_from(["a", "é", "北", "😀", " ", "\n", "\r", "\r\n"]), max_size=60), st.integers(8, 16))
@settings(deadline=None, max_examples=100)
def test_block_borders_do_not_show(tmp_path_factory, characters, block_bytes):
    """With blocks of a few bytes every character, line break and long line straddles a border somewhere."""
    path = written(tmp_path_factory.mktemp("blocks") / "corpus.txt", "".join(characters).encode())

    def words(documents):
        return [text.split() for text in texts(path, documents=documents)]

    expected = words("blank-line"), words("line")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        assert (words("blank-line"), words("line")) == expected


@pytest.mark.parametrize("unit", ["no space here", "北京", "line " * 30 + "\r"])
def test_a_long_document_comes_in_parts_that_together_are_it(tmp_path, unit):
    text = unit * (3 * MAX_CHARS // len(unit))
    for name, data in [("c.txt", text.encode()), ("c.jsonl", json.dumps({"text": text}).encode())]:
        path = written(tmp_path / name, b"first\n\n" * name.endswith("txt") + data)
        parts = [piece for piece in pieces(path) if piece.text != "first"]
        assert [piece.continued for piece in parts] == [False] + [True] * (len(parts) - 1)
        assert len(parts) > 1
        assert max(len(piece.text) for piece in parts) <= 4 * MAX_CHARS
        assert "".join(piece.text for piece in parts).replace("\n", "") == text.replace("\r", "")


@pytest.mark.parametrize(
    ("suffix", "space"),
    [(".txt", " "), *((name, space) for name in (".jsonl", ".csv", ".parquet") for space in " \t\n\u3000")],
)
def test_a_long_document_is_cut_between_words(tmp_path, suffix, space):
    text = space.join(f"word{number}" for number in range(MAX_CHARS // 3))
    parts = texts(written(tmp_path / f"long{suffix}", encoded(suffix, [text])))
    assert "".join(parts) == text
    assert len(parts) >= 3
    assert [word for part in parts for word in part.split()] == text.split()
    assert all(part.startswith(space) for part in parts[1:]), "to byte-level tokens the space is part of the word"


def test_the_parts_of_a_long_document_have_the_tokens_of_the_whole(tmp_path):
    text = " ".join(f"word{number % 977}" for number in range(MAX_CHARS // 3))
    corpus = CorpusConfig(corpus=[str(written(tmp_path / "short.txt", text[:20_000].encode()))])
    for kind in ("wordpiece", "bpe"):
        backend = train_tokenizer(corpus, TokenizerConfig(kind=kind, vocab_size=400), tmp_path / kind).backend
        whole = backend.encode(text, add_special_tokens=False).ids
        for suffix in (".txt", ".jsonl"):
            parts = texts(written(tmp_path / f"long{suffix}", encoded(suffix, [text])))
            ids = [index for part in parts for index in backend.encode(part, add_special_tokens=False).ids]
            assert len(parts) > 1
            assert ids == whole, f"{suffix} {kind}"


def test_a_part_ends_at_its_last_space_unless_it_would_be_short(tmp_path):
    for place in (1, MAX_CHARS // 2 - 1, MAX_CHARS // 2, MAX_CHARS - 1, MAX_CHARS, MAX_CHARS + 1):
        text = "x" * place + " " + "y" * (MAX_CHARS + 9)
        parts = texts(written(tmp_path / "c.jsonl", json.dumps({"text": text}).encode()))
        assert "".join(parts) == text
        assert len(parts[0]) == (place if MAX_CHARS // 2 <= place <= MAX_CHARS else MAX_CHARS)
        assert max(map(len, parts)) <= MAX_CHARS


def test_a_document_that_begins_with_blanks_still_begins(tmp_path):
    """A part may be dropped because it is blank, but never so that a document starts with a continuation."""
    text = " " * (MAX_CHARS + 10) + "word " * MAX_CHARS
    for name, data in [("c.txt", b"first\n\n" + text.encode()), ("c.jsonl", json.dumps({"text": text}).encode())]:
        parts = [piece for piece in pieces(written(tmp_path / name, data)) if piece.text != "first"]
        assert [piece.continued for piece in parts] == [False] + [True] * (len(parts) - 1)
        assert "".join(piece.text for piece in parts).split() == text.split()


@pytest.mark.parametrize("junk", [b"\x80", b"\r", b"x", "北".encode()])
def test_junk_without_end_is_never_held_at_once(tmp_path, monkeypatch, junk):
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1000)
    data = junk * (100_000 // len(junk))
    blocks = [block for block, _ in lines._blocks(io.BytesIO(data), tmp_path, cut_long=True)]
    assert b"".join(blocks) == data
    assert max(map(len, blocks)) <= 4000


def test_gzip_under_another_name_and_damaged_gzip_are_refused(tmp_path):
    packed = gzip.compress(os.urandom(100_000))
    disguised = tmp_path / "corpus.txt"
    disguised.write_bytes(packed)
    assert complaint(disguised).startswith(f"{disguised}:1: ")
    assert "corpus.txt.gz" in complaint(disguised)
    for name, data in [("cut.txt.gz", packed[:-20]), ("none.txt.gz", b"plain text"), ("cut.parquet.gz", packed[:-20])]:
        path = tmp_path / name
        path.write_bytes(data)
        assert complaint(path).startswith(f"{path}: damaged or not gzip")


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("c.jsonl", b'{"text": "a"}\n\n{"text": \n', ":3: not JSON"),
        ("c.jsonl", b'{"text": "a"}\n["a"]\n', ":2: … 'text' … list"),
        ("c.jsonl", b'{"body": "a", "title": "b"}\n', ":1: … 'text' … body, title"),
        ("c.jsonl", b'{"text": 3}\n', ":1: … 'text' … int"),
        ("c.csv", b"title,body\na,b\n", ":1: … 'text' … title, body"),
        ("c.csv", b'id,text\n1,"two\nlines"\n2,un,quoted\n', ":4: 3 columns … 2"),
        ("c.csv", b"text,id\nshort\n", ":2: 1 columns … 2"),
        ("c.csv", b'text\n"open\n', ":2: not CSV"),
        ("c.parquet", b"PAR1 is not enough", ": not readable as Parquet"),
        (
            "c.parquet",
            encoded(".parquet", ["a"]).replace(b"text", b"body"),
            ": … 'text' … id, body",
        ),
    ],
)
def test_a_malformed_record_is_told_with_its_place(tmp_path, name, data, expected):
    path = written(tmp_path / name, data)
    assert tells(complaint(path), f"{path}{expected}")


def test_json_nested_beyond_reason_is_refused(tmp_path):
    assert ":1: not JSON" in complaint(written(tmp_path / "c.jsonl", b"[" * 200_000))


def test_a_missing_value_is_no_document(tmp_path):
    assert texts(written(tmp_path / "c.jsonl", b'{"text": null}\n{"text": "a"}\n')) == ["a"]
    assert texts(written(tmp_path / "c.parquet", encoded(".parquet", [None, "a"]))) == ["a"]


def test_a_name_that_says_nothing_is_plain_text(tmp_path):
    assert reader_of(tmp_path / "LICENSE") is read_text
    assert reader_of(tmp_path / "LICENSE", exact=True) is None
    assert reader_of(tmp_path / "A.JSONL.gz") is readers.read_json_lines
