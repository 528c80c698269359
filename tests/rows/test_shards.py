"""Shards: what is written is read, in any order; damage and hostile manifests are refused."""

import json
import pickle
import shutil

import numpy as np
import pytest
from grammar import documents, write_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import MANIFEST, manifest_bytes, read_manifest
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import FILES, ShardWriter, open_rows, token_type
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A prepared folder of several shards."""
    from data_pipelines.rows import filling
    from data_pipelines.rows import prepare as module

    folder = tmp_path_factory.mktemp("shards")
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "corpus.txt", count=150))])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=200), folder / "tokenizer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH_TOKENS", 750)
        patch.setattr(filling, "_WRITTEN_TOKENS", 500)
        config = PrepareConfig(seq_len=32, shard_tokens=1000, validation_share=0.1)
        prepare(corpus, folder / "tokenizer", config, folder / "data")
    return folder / "data"


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it to damage."""
    return shutil.copytree(made, tmp_path / "data")


def all_rows(folder, split="train"):
    rows = open_rows(folder, split)
    batch = rows.gather(np.arange(len(rows)))
    return [batch.ids_T[a:b].tolist() for a, b in zip(batch.row_starts, batch.row_starts[1:], strict=False)]


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_rows_are_gathered_in_any_order_and_number(made, data):
    rows = open_rows(made)
    assert len({entry["name"] for entry in rows._entries}) > 3
    row_ids = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12))
    batch = rows.gather(np.array(row_ids, np.int64))
    alone = [rows.gather(np.array([row])) for row in row_ids]
    for name in ("ids_T", "starts_word_T"):
        expected = np.concatenate([np.empty(0, np.int64), *(getattr(row, name) for row in alone)])
        assert np.array_equal(getattr(batch, name), expected)
    lengths = [len(row.ids_T) for row in alone]
    assert np.diff(batch.row_starts).tolist() == lengths
    assert np.diff(batch.sequence_starts).tolist() == [n for row in alone for n in np.diff(row.sequence_starts)]
    assert (batch.ids_T[batch.sequence_starts[:-1]] == 2).all()


def test_the_counts_fit_the_rows(made):
    for split in ("train", "validation"):
        rows = open_rows(made, split)
        batch = rows.gather(np.arange(len(rows)))
        assert rows.num_tokens == len(batch.ids_T)
        assert rows.num_sequences == len(batch.sequence_starts) - 1
        assert np.array_equal(rows.token_counts(), np.bincount(batch.ids_T, minlength=rows.vocab_size))
    assert rows.seq_len == 32


@pytest.mark.parametrize(("vocab_size", "expected"), [(2**16, "<u2"), (2**16 + 1, "<u4")])
def test_ids_take_two_bytes_where_they_fit(tmp_path, made, vocab_size, expected):
    assert token_type(vocab_size) == expected
    last = vocab_size - 1
    rows = open_rows(made).gather(np.arange(3))
    rows.ids_T[1] = last
    writer = ShardWriter(tmp_path, "train-00000", vocab_size)
    writer.add(rows)
    entry = writer.close()
    assert entry["tokens"]["size"] == len(rows.ids_T) * int(expected[-1])
    assert np.array_equal(np.fromfile(tmp_path / "train-00000.tokens", expected), rows.ids_T)
    assert np.fromfile(tmp_path / "train-00000.counts", "<i8")[last] == 1


def test_rows_travel_to_a_worker_without_their_arrays(made):
    rows = open_rows(made)
    rows.gather(np.arange(len(rows)))
    packed = pickle.dumps(rows)
    assert len(packed) < 20_000
    again = pickle.loads(packed)
    assert np.array_equal(again.gather(np.arange(5)).ids_T, rows.gather(np.arange(5)).ids_T)


def test_an_empty_split_has_no_rows(tmp_path, made):
    corpus = CorpusConfig(corpus=[str(write_corpus(tmp_path / "corpus.txt", count=5))])
    prepare(corpus, made / "tokenizer", PrepareConfig(validation_share=0), tmp_path / "data")
    rows = open_rows(tmp_path / "data", "validation")
    assert (len(rows), rows.num_tokens, int(rows.token_counts().sum())) == (0, 0, 0)
    assert len(rows.gather(np.empty(0, np.int64)).ids_T) == 0


def test_a_row_that_is_not_there_is_no_other_row(made):
    rows = open_rows(made)
    for row in (-1, len(rows)):
        with pytest.raises(AssertionError, match="not there"):
            rows.gather(np.array([row]))


def test_another_split_is_refused(made):
    with pytest.raises(ValueError, match=r"split.*train, validation.*'test'"):
        open_rows(made, "test")


@pytest.mark.parametrize("kind", FILES)
def test_a_file_missing_or_cut_is_told(folder, kind):
    path = folder / f"train-00001.{kind}"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(ValueError, match=f"train-00001.{kind} is damaged: .* expected {len(data):,}"):
        open_rows(folder)
    path.unlink()
    with pytest.raises(ValueError, match=f"train-00001.{kind} is missing"):
        open_rows(folder)


def test_a_flipped_bit_is_found_by_verifying(folder):
    open_rows(folder).verify()
    path = folder / "train-00000.tokens"
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"train-00000.tokens is damaged: its hash differs"):
        open_rows(folder).verify()


def test_every_damage_to_what_a_manifest_says_is_found(folder):
    path = folder / MANIFEST
    whole = path.read_bytes()
    for cut in range(0, len(whole) - 1, 211):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"manifest.json is damaged"):
            open_rows(folder)
    manifest = json.loads(whole)
    for key, value in [
        ("vocab_size", 2),
        ("fingerprint", "0"),
        ("shards", {"train": [], "validation": []}),
        ("shards", [3]),
        ("identity", {}),
        ("vocab_size", None),
        ("format", 1.5),
    ]:
        path.write_text(json.dumps(manifest | {key: value}))
        with pytest.raises(ValueError, match=r"manifest.json (is damaged|has format)"):
            open_rows(folder)
        path.write_text(json.dumps({name: item for name, item in manifest.items() if name != key}))
        with pytest.raises(ValueError, match=r"manifest.json is damaged"):
            open_rows(folder)
    for other in ("[]", "null", "[" * 100_000, '"text"'):
        path.write_text(other)
        with pytest.raises(ValueError, match=r"manifest.json is damaged"):
            open_rows(folder)


@pytest.mark.parametrize(
    "name", ["../train-00000", "/etc/passwd", "train-00000/../x", "part-1-of-2/../../x", "train-0", ""]
)
def test_a_hostile_shard_name_is_refused(folder, name):
    manifest = read_manifest(folder)
    manifest["shards"]["train"][0]["name"] = name
    (folder / MANIFEST).write_bytes(manifest_bytes(manifest))
    with pytest.raises(ValueError, match="the shard name"):
        open_rows(folder)


def test_a_newer_format_is_refused(folder):
    (folder / MANIFEST).write_text(json.dumps(read_manifest(folder) | {"format": 2}))
    with pytest.raises(ValueError, match=r"format 2.* 1"):
        open_rows(folder)


def test_a_folder_without_manifest_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a folder of prepared data"):
        open_rows(tmp_path)
    (tmp_path / "progress.json").write_text("{}")
    with pytest.raises(ValueError, match="only half prepared; run the same"):
        open_rows(tmp_path)


def test_rows_read_back_as_the_text(made):
    from data_pipelines.vocab.tokenizer import load_tokenizer

    backend = load_tokenizer(made / "tokenizer").backend
    text = " ".join(backend.decode(row) for split in ("train", "validation") for row in all_rows(made, split))
    found = text.replace(" .", ".").split()
    assert sorted(found) == sorted(" ".join(documents(150)).split())
