"""Which documents a corpus consists of: files, folders, globs, weights; and what identifies it."""

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest
from grammar import documents as generated
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import corpus_bytes, document_hash, find_sources, fingerprint_sources, read_documents
from data_pipelines.text.readers import MAX_CHARS


def texts(*entries, **options) -> list[str]:
    return [document.text for document in read_documents(CorpusConfig(corpus=[*map(str, entries)], **options))]


def complaint(*entries) -> str:
    with pytest.raises(ValueError) as caught:
        find_sources(CorpusConfig(corpus=[*map(str, entries)]))
    return str(caught.value)


@pytest.fixture
def tree(tmp_path) -> Path:
    """Files whose text is their name, in nested folders."""
    for name in ("b.txt", "a/z.txt", "a/b/y.txt.gz", "c.jsonl", "notes.md", "a/image.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = f'{{"text": "{name}"}}' if name.endswith("jsonl") else name
        path.write_bytes(gzip.compress(data.encode()) if name.endswith("gz") else data.encode())
    return tmp_path


def test_a_folder_is_read_whole_in_the_order_of_its_names(tree):
    assert texts(tree) == ["a/b/y.txt.gz", "a/z.txt", "b.txt", "c.jsonl"]


def test_a_glob_is_read_in_the_order_of_its_names(tree):
    assert texts(tree / "*.txt") == ["b.txt"]
    assert texts(tree / "**" / "*.txt*") == ["a/b/y.txt.gz", "a/z.txt", "b.txt"]
    assert texts(tree / "*.md") == ["notes.md"]


def test_sources_come_in_the_order_given(tree):
    assert texts(tree / "c.jsonl", tree / "a") == ["c.jsonl", "a/b/y.txt.gz", "a/z.txt"]


def test_a_name_with_signs_of_a_glob_or_weight_is_a_name_if_it_exists(tmp_path):
    for name in ("[1].txt", "a*.txt", "user@2"):
        (tmp_path / name).write_text(name)
        assert texts(tmp_path / name) == [name]


def test_what_is_not_there_is_told(tmp_path):
    assert "'nothing/here.txt'" in complaint("nothing/here.txt")
    assert "hf:" not in complaint("nothing/here/at/all.txt")
    assert "write hf:some/dataset" in complaint("some/dataset")
    assert "no file matches" in complaint(tmp_path / "*.txt")
    assert ".txt .jsonl .json .ndjson .csv .parquet" in complaint(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a folder" in complaint(tmp_path / "pipe")
    with pytest.raises(ValueError, match="corpus is empty"):
        CorpusConfig(corpus=[])


@pytest.mark.parametrize("weight", ["0", "0.0", "1001", "-1", "nan", "inf"])
def test_a_weight_out_of_range_is_told(tree, weight):
    assert f"the weight of '{tree / 'b.txt'}' must be in (0, 1000], got {weight}" in complaint(f"{tree}/b.txt@{weight}")


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("many") / "many.txt"
    path.write_text("\n\n".join(f"{i} {text}" for i, text in enumerate(generated(2000))))
    return path


@given(st.floats(0.01, 3.5))
@settings(deadline=None, max_examples=10)
def test_a_weight_is_the_mean_number_of_readings(many, weight):
    counts = Counter(texts(f"{many}@{weight:.3f}"))
    whole = int(weight)
    assert set(counts.values()) <= {whole, whole + 1}
    share = (weight - whole) * (1 - (weight - whole))
    assert abs(sum(counts.values()) / 2000 - weight) <= 4 * (share / 2000) ** 0.5 + 1e-3


def test_a_larger_weight_takes_the_same_documents_and_more(many):
    some, more = set(texts(f"{many}@0.3")), set(texts(f"{many}@0.6"))
    assert some < more
    assert texts(f"{many}@.3") == [text for text in texts(many) if text in some]


def test_what_is_taken_by_weight_tells_nothing_of_other_choices(many):
    """Were both the same hash, every held-out document would be among those that a weight takes."""
    taken = texts(f"{many}@0.5")
    held_out = sum(document_hash(text, "validation") < 0.2 * 2**64 for text in taken)
    assert abs(held_out / len(taken) - 0.2) < 0.06


def test_repeats_are_counted(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo")
    found = read_documents(CorpusConfig(corpus=[f"{tmp_path / 'a.txt'}@2"]))
    assert [(d.text, d.repeat) for d in found] == [("one", 0), ("two", 0), ("one", 1), ("two", 1)]


def test_the_parts_of_a_long_document_are_taken_or_left_together(tmp_path):
    long = ["".join(f"{name}{i} " for i in range(MAX_CHARS // 3)) for name in "abcdefgh"]
    (tmp_path / "long.txt").write_text("\n\n".join(long))
    found: dict[str, list] = {}
    for document in read_documents(CorpusConfig(corpus=[f"{tmp_path / 'long.txt'}@0.5"])):
        found.setdefault(document.text.strip()[0], []).append(document)
    assert 0 < len(found) < 8
    for name, parts in found.items():
        assert "".join(part.text for part in parts).split() == long["abcdefgh".index(name)].split()
        assert [part.continued for part in parts] == [False] + [True] * (len(parts) - 1)


def test_where_a_long_line_stands_does_not_change_its_hash(tmp_path):
    line = "".join(f"{i} " for i in range(MAX_CHARS // 2))
    hashes = set()
    for before in (0, 1, 77_777, 1_500_000):
        (tmp_path / "c.txt").write_text("x " * (before // 2) + "\n\n" + line)
        first = [d for d in read_documents(CorpusConfig(corpus=[str(tmp_path / "c.txt")])) if d.text.startswith("0 ")]
        hashes.add(document_hash(first[0].text, "validation"))
    assert len(hashes) == 1


def test_the_size_is_known_for_files_and_guessed_for_packed_ones(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 1000)
    (tmp_path / "a.txt.gz").write_bytes(b"x" * 1000)
    sizes = [corpus_bytes(CorpusConfig(corpus=[f"{tmp_path / name}"])) for name in ("a.txt", "a.txt@2.5", "a.txt.gz")]
    assert sizes == [1000, 2500, 3000]
    assert corpus_bytes(CorpusConfig(corpus=["hf:some/dataset", str(tmp_path / "a.txt")])) is None


def fingerprint(entry, known=()):
    return fingerprint_sources(CorpusConfig(corpus=[str(entry)]), known)


def test_a_fingerprint_follows_the_bytes_and_not_the_place(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("same")
        os.utime(tmp_path / folder / "a.txt", ns=(0, 0))
    before = fingerprint(tmp_path / "one")
    assert fingerprint(tmp_path / "two") == before
    (tmp_path / "two" / "a.txt").write_text("else")
    assert fingerprint(tmp_path / "two", before)[0]["sha256"] != before[0]["sha256"]


def test_files_of_one_name_size_and_time_are_told_apart(tmp_path):
    """As an unpacked archive leaves them: two folders with files of the same name, second for second."""
    for folder, text in (("one", "aaaa"), ("two", "bbbb")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(text)
        os.utime(tmp_path / folder / "a.txt", ns=(0, 0))
    first = fingerprint(tmp_path)
    assert first[0]["sha256"] != first[1]["sha256"]
    assert fingerprint(tmp_path, first) == first


def test_an_unchanged_file_is_not_read_again(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("text")
    known = fingerprint(tmp_path / "a.txt")
    monkeypatch.setattr("data_pipelines.text.corpus.file_hash", lambda path: pytest.fail("was read again"))
    assert fingerprint(tmp_path / "a.txt", known) == known


def test_a_local_dataset_is_known_by_its_files(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a"}')
    before = fingerprint(f"hf:{tmp_path}:train")
    (tmp_path / "train.jsonl").write_text('{"text": "b"}')
    assert [entry["name"] for entry in before] == ["train.jsonl"]
    assert fingerprint(f"hf:{tmp_path}:train") != before


def test_a_dataset_on_the_hub_is_known_by_its_commit(monkeypatch):
    from data_pipelines.text import corpus

    def fingerprint(commit, known=()):
        monkeypatch.setattr(corpus, "hub_revision", lambda name: {"some/dataset:train": commit}[name])
        return fingerprint_sources(CorpusConfig(corpus=["hf:some/dataset:train"]), known)

    bare = {"name": "hf:some/dataset:train", "weight": 1.0}
    first = fingerprint("c0ffee")
    assert first == [bare | {"revision": "c0ffee"}]
    assert fingerprint("decade", first) == [bare | {"revision": "decade"}]
    assert fingerprint(None, first) == first  # offline: as it was
    assert fingerprint(None) == [bare]
    assert fingerprint("c0ffee", [bare]) == [bare]  # then offline: nothing to compare with
    assert fingerprint(None, [bare | {"weight": 2.0, "revision": "c0ffee"}]) == [bare]
