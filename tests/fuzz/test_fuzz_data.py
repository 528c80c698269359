"""Corpora and labeled files of any bytes are read or refused with their place."""

import gzip
import json

import pytest
from fuzzing import SETTINGS, as_json, changed_bytes, odd_texts, refused, texts, values, write
from hypothesis import example, given
from hypothesis import strategies as st

from bertkit.config.finetune import LabeledSection
from bertkit.finetune.tasks.tagging import TAGGING
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import read_labeled_texts, read_tagged
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents

GOOD = {
    ".txt": b"anna paints\n\nboris\r\nforgets\n",
    ".jsonl": b'{"text": "anna paints"}\n{"text": "boris \\u00e9"}\n',
    ".csv": b'id,text\n1,"anna, paints"\n2,boris\n',
    ".parquet": b"PAR1",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"text": ["anna paints", "boris"], "id": [1, 2]}), sink)
    return sink.getvalue().to_pybytes()


GOOD[".parquet"] = parquet()
NAMES = [f"file{suffix}{gz}" for suffix in GOOD for gz in ("", ".gz")]


@given(st.sampled_from(NAMES), st.sampled_from(["strict", "replace"]), st.data())
@SETTINGS
def test_any_bytes_are_a_corpus_or_refused(folder, name, errors, data):
    suffix = "." + name.split(".")[1]
    content = data.draw(changed_bytes(GOOD[suffix]) | st.binary(max_size=300))
    if name.endswith(".gz"):
        content = data.draw(changed_bytes(gzip.compress(content, mtime=0)) | st.just(gzip.compress(content, mtime=0)))
    path = write(folder / name, content)
    config = CorpusConfig(
        corpus=[str(path)], errors=errors, documents=data.draw(st.sampled_from(["line", "blank-line"]))
    )

    def read() -> None:
        for document in read_documents(config):
            assert document.text.strip()
            document.text.encode()

    complaint = refused(read)
    if complaint:
        assert name in complaint, "the file is named"
    if name == "file.txt" and errors == "replace" and not content.startswith(b"\x1f\x8b"):
        assert complaint is None, "with replace every text is read"


@given(st.lists(values, max_size=3), st.data())
@SETTINGS
def test_any_json_lines_are_a_corpus_or_refused(folder, records, data):
    records = [*records, {"text": data.draw(values)}]
    path = write(folder / "any.jsonl", "\n".join(as_json(record) for record in records))
    complaint = refused(lambda: list(read_documents(CorpusConfig(corpus=[str(path)]))))
    assert complaint is None or "any.jsonl:" in complaint


words = texts | odd_texts | st.sampled_from(["anna", "O", "B-PER", "I-PER", "S-X", "E-X", "-DOCSTART-", "#", "# x = y"])
lines = st.lists(words, max_size=4).map("\t".join) | st.lists(words, max_size=4).map(" ".join) | st.just("")
SCHEMES = ["auto", "plain", "iob1", "iob2", "bioes"]


@given(st.lists(lines, max_size=8).map("\n".join) | st.binary(max_size=200), st.sampled_from(SCHEMES))
@example("a\tB-X\n" * 3, "bioes")
@example("1\ta" + "\t_" * 8, "auto")
@SETTINGS
def test_any_lines_are_labeled_data_or_refused(folder, content, scheme):
    for name in ("any.conll", "any.conllu", "any.jsonl", "any.txt"):
        path = str(write(folder / name, content))

        def read(path=path) -> None:
            found = TAGGING.read(LabeledSection(train=[path], scheme=scheme))
            assert all(len(sentence.words) == len(sentence.tags or ()) for sentence in found.train)

        complaint = refused(read)
        assert complaint is None or name in complaint, complaint


records = st.fixed_dictionaries(
    {},
    optional={
        "tokens": st.lists(words, max_size=4) | values,
        "tags": st.lists(words, max_size=4) | values,
        "text": words | values,
        "spans": st.lists(st.tuples(st.integers(-2, 9), st.integers(-2, 9), words).map(list), max_size=3) | values,
        "label": words | values,
        "anything": values,
    },
)


@given(st.lists(records, max_size=4))
@example([{"text": "anna", "spans": 7}])
@example([{"text": "anna", "spans": {"a": 1}}])
@example([{"text": "anna", "spans": [[True, 2, "X"]]}])
@SETTINGS
def test_any_records_are_labeled_data_or_refused(folder, records):
    path = str(write(folder / "records.jsonl", "\n".join(json.dumps(record) for record in records)))
    for read in (read_tagged, read_labeled_texts):
        for tagged in (True, False):
            complaint = refused(lambda read=read, tagged=tagged: list(read(path, TaggedConfig(), tagged=tagged)))
            assert complaint is None or "records.jsonl" in complaint


@given(st.binary(max_size=200) | st.lists(words, max_size=6).map(",".join))
@example("text,label\na,b\nc")
@example('text,label\n"a,b')
@SETTINGS
def test_any_table_is_labeled_text_or_refused(folder, content):
    for name in ("table.csv", "table.tsv"):
        path = str(write(folder / name, content))
        complaint = refused(lambda path=path: list(read_labeled_texts(path, TaggedConfig())))
        assert complaint is None or name in complaint
