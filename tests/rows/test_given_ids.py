"""Ids that were made elsewhere become the rows that the same text becomes, from every format that holds them."""

import bz2
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from grammar import documents as generated
from runs import SMALL

from bertkit.cli import main
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.given_ids import first_words
from data_pipelines.rows.manifest import read_manifest
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.text.ids import ids_of_text, ids_of_value, text_of_ids
from data_pipelines.text.readers import READERS
from data_pipelines.text.shards_of_others import read_arrow, read_mds
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer

TEXTS = list(generated(60, seed=0))
CONFIG = PrepareConfig(seq_len=32, validation_share=0.0)


def mds(samples: list[bytes], encoding: str, name: str = "input_ids") -> bytes:
    """A shard of MosaicML streaming, with a column of numbers of a fixed size before the one that counts."""
    header = {"column_names": ["number", name], "column_encodings": ["uint32", encoding], "column_sizes": [4, None]}
    config = json.dumps(header | {"format": "mds", "compression": None, "hashes": [], "version": 2}).encode()
    packed = [
        len(data).to_bytes(4, "little") + number.to_bytes(4, "little") + data for number, data in enumerate(samples)
    ]
    starts = np.cumsum([4 * (len(packed) + 2) + len(config), *map(len, packed)]).astype("<u4")
    return len(packed).to_bytes(4, "little") + starts.tobytes() + config + b"".join(packed)


def array(ids: list[int], kind: str, said: bool) -> bytes:
    """As MDS writes an array: type where the column does not say it, number of dimensions, shape, values."""
    numbers = {"uint16": 16, "int32": 33, "int64": 65}
    head = b"" if said else bytes([numbers[kind]])
    return head + bytes([1 << 2 | 1]) + len(ids).to_bytes(2, "little") + np.array(ids, kind).tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A text, its tokenizer, its rows, and its ids in every form, with special tokens and padding around them."""
    folder = tmp_path_factory.mktemp("ids")
    (folder / "text.txt").write_text("\n\n".join(TEXTS))
    corpus = CorpusConfig(corpus=[str(folder / "text.txt")])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=160), folder / "tokenizer")
    prepare(corpus, folder / "tokenizer", CONFIG, folder / "rows")
    special = tokenizer.special
    plain = [tokenizer.backend.encode(text, add_special_tokens=False).ids for text in TEXTS]
    ids = [[special.cls_id, *row, special.sep_id, *[special.pad_id] * (number % 3)] for number, row in enumerate(plain)]
    table = pyarrow.table({"input_ids": pyarrow.array(ids, pyarrow.list_(pyarrow.int32()))})
    pyarrow.parquet.write_table(table, folder / "ids.parquet")
    with pyarrow.OSFile(str(folder / "stream.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as out:
        out.write_table(table, max_chunksize=7)
    with pyarrow.OSFile(str(folder / "file.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    (folder / "ids.jsonl").write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in ids))
    (folder / "typed.mds").write_bytes(mds([array(row, "int32", True) for row in ids], "ndarray:int32"))
    (folder / "untyped.mds").write_bytes(mds([array(row, "uint16", False) for row in ids], "ndarray"))
    for kind in ("int64", "int32", "uint16"):
        (folder / f"{kind}.mds").write_bytes(mds([np.array(row, kind).tobytes() for row in ids], "bytes"))
    (folder / "packed.mds.bz2").write_bytes(bz2.compress((folder / "typed.mds").read_bytes()))
    packed = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(packed, "zstd") as out:
        out.write((folder / "typed.mds").read_bytes())
    (folder / "packed.mds.zstd").write_bytes(packed.getvalue().to_pybytes())
    return folder


FORMS = ["ids.parquet", "stream.arrow", "file.arrow", "ids.jsonl", "typed.mds", "untyped.mds", "int64.mds", "int32.mds"]
FORMS += ["uint16.mds", "packed.mds.bz2", "packed.mds.zstd"]


def corpus_of(*paths: Path, **options) -> CorpusConfig:
    return CorpusConfig(corpus=list(map(str, paths)), **{"field": "input_ids", "content": "ids"} | options)


@pytest.mark.parametrize("form", FORMS)
def test_ids_give_the_rows_that_their_text_gives(folder, form, tmp_path):
    prepare(corpus_of(folder / form), folder / "tokenizer", CONFIG, tmp_path / "rows")
    shards = [read_manifest(rows)["shards"] for rows in (folder / "rows", tmp_path / "rows")]
    assert shards[0] == shards[1]


def test_samples_of_several_documents_are_cut_at_their_borders(folder, tmp_path):
    """Also pairs, [CLS] a [SEP] b [SEP], and a sample that holds nothing."""
    special = load_tokenizer(folder / "tokenizer").special
    cls, sep = special.cls_id, special.sep_id
    lines = [[cls, 10, 11, sep, 12, 13, sep], [20, 21, sep, cls, 22], [], [cls, sep]]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps({"input_ids": line}) + "\n" for line in lines))
    config = PrepareConfig(seq_len=8, rows="line", validation_share=0.0)
    rows = open_rows(prepare(corpus_of(tmp_path / "ids.jsonl"), folder / "tokenizer", config, tmp_path / "rows"))
    found = [rows.gather(np.array([row])).ids_T.tolist() for row in range(len(rows))]
    assert found == [[cls, *pair, sep] for pair in ([10, 11], [12, 13], [20, 21], [22])]


def test_a_folder_of_shards_is_read_without_its_indexes_and_must_be_complete(folder, tmp_path):
    half = len(TEXTS) // 2
    for number, ids in enumerate(([5, 6, 7], [8, 9])):
        (tmp_path / f"shard.0000{number}.mds").write_bytes(mds([np.array(ids, "int64").tobytes()] * half, "bytes"))
    index = {"shards": [{"raw_data": {"basename": f"shard.0000{number}.mds"}, "zip_data": None} for number in (0, 1)]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    rows = open_rows(prepare(corpus_of(tmp_path), folder / "tokenizer", CONFIG, tmp_path.parent / "rows-of-folder"))
    assert rows.token_counts()[[5, 9]].tolist() == [half, half]
    (tmp_path / "shard.00001.mds").unlink()
    with pytest.raises(ValueError, match=r"shard\.00001\.mds"):
        prepare(corpus_of(tmp_path), folder / "tokenizer", CONFIG, tmp_path.parent / "other")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([5, 160], "id 160"),
        ([5, -1], "-1 is not a token id"),
        ([5, 0.5], "token ids"),
        ("text", "token ids"),
        ("MASK", "mask token"),
        ([[1, 2], [3]], "token ids"),
    ],
)
def test_ids_of_another_tokenizer_are_refused_with_their_place(folder, tmp_path, line, said):
    mask_id = load_tokenizer(folder / "tokenizer").special.mask_id
    line = [5, mask_id] if line == "MASK" else line
    (tmp_path / "ids.jsonl").write_text(json.dumps({"input_ids": [5, 6]}) + "\n" + json.dumps({"input_ids": line}))
    with pytest.raises(ValueError, match=said) as caught:
        prepare(corpus_of(tmp_path / "ids.jsonl"), folder / "tokenizer", CONFIG, tmp_path / "rows")
    assert "ids.jsonl:2" in str(caught.value)


def test_what_cannot_be_read_is_named(folder, tmp_path):
    good = (folder / "typed.mds").read_bytes()
    for name, data, said in (
        ("cut.mds", good[:-1], "bytes, expected"),
        ("noise.mds", b"\0" * 50, "MDS"),
        ("pickled.mds", mds([b"x"], "pkl"), "pickle"),
        ("real.mds", mds([b"x"], "ndarray:float32"), "whole numbers"),
        ("other.mds", mds([b"x"], "bytes", name="tokens"), "tokens"),
        ("cut.arrow", (folder / "file.arrow").read_bytes()[:200], "Arrow"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=said) as caught:
            prepare(corpus_of(tmp_path / name), folder / "tokenizer", CONFIG, tmp_path / "rows")
        assert name in str(caught.value)


def test_text_in_shards_of_others_is_text(tmp_path, folder):
    assert {READERS[".mds"], READERS[".arrow"]} == {read_mds, read_arrow}
    (tmp_path / "text.mds").write_bytes(mds([text.encode() for text in TEXTS], "str", name="text"))
    assert [document.text for document in read_documents(CorpusConfig(corpus=[str(tmp_path / "text.mds")]))] == TEXTS
    with pytest.raises(ValueError, match="content"):
        read_documents(corpus_of(folder / "ids.parquet"))


def test_a_number_and_its_character_are_the_same():
    ids = np.array([0, 1, 0x1FFF, 0x2000, 65_535, 250_000, 1_000_000])
    assert np.array_equal(ids_of_text(text_of_ids(ids)), ids)
    text_of_ids(ids).encode()  # no half of a character
    assert not any(character.isspace() for character in text_of_ids(np.arange(0x2000)))
    for kind in ("<i8", "<i4"):
        assert np.array_equal(ids_of_value(ids.astype(kind).tobytes(), ""), ids)


def test_a_recipe_trains_on_ids_with_their_tokenizer(folder, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    changes = [change for change in SMALL if not change.startswith("tokenizer.")]
    ids = [f"data.corpus={folder / 'typed.mds'}", "data.field=input_ids", "data.content=ids", "train.steps=1"]
    command = ["pretrain", "bert-mini", *changes, *ids, f"run.dir={tmp_path / 'run'}"]
    assert main(command) == 2
    assert "tokenizer.path" in capfd.readouterr().err
    assert main([*command, f"tokenizer.path={folder / 'tokenizer'}"]) == 0


def test_prepare_says_what_the_ids_mean(folder, tmp_path, capsys):
    tokenizer = load_tokenizer(folder / "tokenizer")
    assert TEXTS[0].lower().startswith(first_words(corpus_of(folder / "typed.mds"), tokenizer).split()[0])
    flags = ["--field", "input_ids", "--content", "ids", "--tokenizer", str(folder / "tokenizer")]
    command = ["prepare", "--corpus", str(folder / "typed.mds"), *flags, "--out", str(tmp_path / "rows")]
    assert main(command) == 0
    assert "begin with" in capsys.readouterr().out
    assert main([*command[:-1], str(tmp_path / "more"), "--segmenter", "jieba"]) == 2
    assert main([*command[:-1], str(tmp_path / "more"), "--rows", "sentences"]) == 2
    assert "segmenter" in capsys.readouterr().err
