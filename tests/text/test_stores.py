"""Corpora on stores are read as files are, and a store that fails is asked again, then named."""

import gzip
import json

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.utils import infer_storage_options
from grammar import documents as generated

from bertkit.cli import main
from data_pipelines.text import stores
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import check_unchanged, corpus_bytes, fingerprint_sources, read_documents
from data_pipelines.text.transfer import stored_files

TEXT = "\n\n".join(generated(200, seed=0))


class NoCredentialsError(Exception):
    """As drivers call it; each has one of its own."""


class Flaky(MemoryFileSystem):
    """A store that fails as often as `failures` says: with an error, or with too few bytes."""

    protocol = "flaky"
    failures: list[str]
    asked: list[str]

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("flaky://", "memory://"))

    def unstrip_protocol(self, name):
        return f"flaky:/{name}"

    def cat_file(self, path, start=None, end=None, **options):
        Flaky.asked.append(path)
        failure = Flaky.failures.pop() if Flaky.failures else None
        if failure == "throttled":
            raise RuntimeError("503 slow down")
        if failure == "anonymous":
            raise NoCredentialsError("no key was found. " * 1000)
        data = super().cat_file(path, start=start, end=end, **options)
        return data[:-1] if failure == "short" else data


class Hosted(MemoryFileSystem):
    """A store that is reached at a host, and whose paths begin behind it, as those of Hadoop do."""

    protocol = "hosted"

    def __init__(self, host, **options):
        super().__init__(**options)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(infer_storage_options(path)["path"])

    @staticmethod
    def _get_kwargs_from_urls(path):
        return {key: value for key, value in infer_storage_options(path).items() if key == "host"}


@pytest.fixture(autouse=True)
def store(monkeypatch):
    """An empty store; no try waits."""
    monkeypatch.setattr(stores, "WAITS", (0,) * 4)
    monkeypatch.setattr(stores, "BLOCK_BYTES", 1000)
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    fsspec.register_implementation("hosted", Hosted, clobber=True)
    Flaky.failures, Flaky.asked = [], []
    memory = MemoryFileSystem()
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    return memory


def texts(*entries: str) -> list[str]:
    return [document.text for document in read_documents(CorpusConfig(corpus=list(entries)))]


def complaint(*entries: str) -> str:
    with pytest.raises(ValueError) as caught:
        texts(*entries)
    return str(caught.value)


def test_every_format_is_read_from_a_store_as_from_disk(store, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXT.split("\n\n")}), tmp_path / "a.parquet")
    files = {
        "a.txt": TEXT.encode(),
        "a.txt.gz": gzip.compress(TEXT.encode()),
        "a.parquet": (tmp_path / "a.parquet").read_bytes(),
        "a.parquet.gz": gzip.compress((tmp_path / "a.parquet").read_bytes()),
    }
    for name, data in files.items():
        store.pipe(f"/texts/{name}", data)
        (tmp_path / name).write_bytes(data)
        assert texts(f"memory://texts/{name}") == texts(str(tmp_path / name)) == TEXT.split("\n\n")


def test_folders_globs_and_weights_mean_what_they_mean_on_disk(store):
    for name in ("b.txt", "a/z.txt", "a/image.png"):
        store.pipe(f"/tree/{name}", name.encode())
    assert texts("memory://tree") == ["a/z.txt", "b.txt"]
    assert texts("memory://tree/*.txt@2") == ["b.txt", "b.txt"]
    assert corpus_bytes(CorpusConfig(corpus=["memory://tree/b.txt@2"])) == 10
    assert "memory://tree/*.csv" in complaint("memory://tree/*.csv")
    assert "memory://nowhere" in complaint("memory://nowhere/x.txt")


@pytest.mark.parametrize(
    "url", ["hosted://node:1/in/a.txt", "hosted://node:1/in", "hosted://node:1/in/", "hosted://node:1/*/*"]
)
def test_the_host_of_a_store_stays_with_its_files(store, url):
    store.pipe("/in/a.txt", TEXT.encode())
    assert [file.url for file in stores.find_stored(url)] == ["hosted://node:1/in/a.txt"]
    assert texts(url) == TEXT.split("\n\n")
    assert list(stored_files("hosted://node:1/in/")) == ["a.txt"]


@pytest.mark.parametrize("failure", ["throttled", "short"])
def test_a_block_that_fails_is_asked_for_again(store, failure):
    store.pipe("/a.txt", TEXT.encode())
    blocks = -(-len(TEXT) // stores.BLOCK_BYTES)
    Flaky.failures = [failure] * 4
    assert texts("flaky://a.txt") == TEXT.split("\n\n")
    assert len(Flaky.asked) == blocks + 4


@pytest.mark.parametrize(("failure", "named"), [("throttled", "503"), ("short", "999 bytes came of 1,000")])
def test_a_store_that_goes_on_failing_is_named(store, failure, named):
    store.pipe("/a.txt", TEXT.encode())
    Flaky.failures = [failure] * 100
    said = complaint("flaky://a.txt")
    assert "flaky://a.txt" in said
    assert named in said


def test_credentials_that_are_not_there_are_told_at_once(store):
    store.pipe("/locked.txt", b"short")
    Flaky.failures = ["anonymous"] * 100
    said = complaint("flaky://locked.txt")
    assert "check your credentials" in said
    assert Flaky.asked.count("/locked.txt") == 1, "blocks of earlier tests may still be on their way"
    assert len(said) < 500


def test_a_file_that_changed_on_its_store_is_told(store):
    store.pipe("/a.txt", TEXT.encode())
    config = CorpusConfig(corpus=["memory://a.txt"])
    before = fingerprint_sources(config)
    check_unchanged(config, before)
    store.pipe("/a.txt", TEXT.swapcase().encode())
    with pytest.raises(ValueError, match=r"a\.txt"):
        check_unchanged(config, before)


def test_a_store_without_driver_or_name_is_told(monkeypatch):
    assert "nobody://a.txt" in complaint("nobody://a.txt")
    assert "zip://" in complaint("zip://a.txt::memory://a.zip")

    def missing(url):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    assert "bertkit[s3]" in complaint("s3://bucket/a.txt")

    def without_java(url):
        raise OSError("Unable to load libjvm")

    monkeypatch.setattr(fsspec.core, "url_to_fs", without_java)
    assert "JAVA_HOME" in complaint("hdfs://host/a.txt")


def test_rows_prepared_from_a_store_are_those_of_the_disk(store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    store.pipe("/a.txt", TEXT.encode())
    (tmp_path / "a.txt").write_text(TEXT)
    assert main(["tokenizer", "train", "--corpus", "memory://a.txt", "--vocab-size", "300", "--out", "tokenizer"]) == 0
    for corpus, out in (("memory://a.txt", "stored"), ("a.txt", "here")):
        assert main(["prepare", "--corpus", corpus, "--tokenizer", "tokenizer", "--out", out]) == 0
    stored, here = (json.loads((tmp_path / out / "manifest.json").read_text()) for out in ("stored", "here"))
    assert stored["shards"] == here["shards"]
