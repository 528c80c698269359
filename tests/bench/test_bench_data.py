"""The benches of the data line check their own work, and write rows that a program can read."""

import json
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from reference import reference_transformers
from telling import rows_and_notes

from bertkit.bench import clean, collator, prepare, tag
from bertkit.bench.measure import JSON_KEYS, interleaved
from bertkit.cli import main


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    def once(candidates, rounds, repeats=1):
        return interleaved(candidates, rounds=1)

    generate = prepare.generated_documents
    monkeypatch.setattr(clean, "generated_documents", lambda num_chars: generate(100_000, num_words=2000))
    monkeypatch.setattr(collator, "interleaved", once)
    monkeypatch.setattr(prepare, "interleaved", once)
    monkeypatch.setattr(prepare, "generated_documents", lambda num_chars: generate(20_000, num_words=500))
    monkeypatch.setattr(tag, "generated_documents", lambda num_chars: generate(num_chars, num_words=500))
    sentences = tag._sentences
    monkeypatch.setattr(tag, "interleaved", once)
    monkeypatch.setattr(tag, "_sentences", lambda count: sentences(8))
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    monkeypatch.setattr(tag, "_SHAPES", {name: replace(config, **small) for name, config in tag._SHAPES.items()})


def measured(tmp_path, *argv) -> list[dict]:
    assert main(["bench", *argv, "--quick", "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    for row in rows:
        assert tuple(row) == JSON_KEYS
        assert row["ours"] > 0
    return rows


def test_bench_collator_measures_every_shape_and_form(tmp_path):
    rows = measured(tmp_path, "collator")
    assert len({row["workload"] for row in rows}) == len(rows) == 12
    assert all(row["unit"] == "tokens/s" and row["theirs"] is None and row["ratio"] is None for row in rows)


def test_bench_collator_stands_beside_transformers(tmp_path):
    reference_transformers()
    for row in measured(tmp_path, "collator", "--against", "transformers"):
        assert row["ratio"] == pytest.approx(row["ours"] / row["theirs"])


def test_bench_prepare_stands_beside_bare_encoding():
    rows, _ = rows_and_notes(prepare.bench_prepare(None, quick=True))
    assert [row.workload.split(",")[0] for row in rows] == ["prepare wordpiece", "prepare bpe"]
    assert all(row.unit == "MB/s" and row.ratio > 0 for row in rows)


def test_bench_tag_stands_beside_the_pipeline_with_the_same_tags(tmp_path, monkeypatch):
    reference_transformers()
    monkeypatch.setattr(tag, "multiplies_in_bf16", lambda: True)
    rows = measured(tmp_path, "tag", "--against", "transformers")
    shapes, batches, kinds = ("bert", "modernbert"), (1, 32), ("ragged", "full")
    backends = ("torch", "bf16", "onnx", "int8")
    assert [row["workload"] for row in rows] == [
        f"tag {shape} 4×256, batch {batch}, {kind}, {backend}"
        for shape, batch, kind, backend in product(shapes, batches, kinds, backends)
    ]
    for row in rows:
        assert row["unit"] == "words/s"
        assert row["ratio"] == pytest.approx(row["ours"] / row["theirs"])
    pipeline = tag._their_pipeline

    def mistaken(folder):
        def tagged(sentences, batch_size):
            found = pipeline(folder)(sentences, batch_size=batch_size)
            found[0][0]["entity"] = "B-NONE"
            return found

        return tagged

    monkeypatch.setattr(tag, "_their_pipeline", mistaken)
    with pytest.raises(AssertionError):
        list(tag.bench_tag("transformers", quick=True))


def test_bench_tag_alone_has_no_opponent(tmp_path):
    assert {row["ratio"] for row in measured(tmp_path, "tag")} == {None}


def test_bench_tag_is_of_torch_alone_where_there_is_no_onnxruntime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(tag, "multiplies_in_bf16", lambda: False)
    rows, notes = rows_and_notes(tag.bench_tag(None, quick=True))
    assert {row.workload.rpartition(", ")[2] for row in rows} == {"torch"}
    assert "extra onnx" in notes[1]


def test_bench_clean_finds_planted_copies_and_nothing_else(tmp_path):
    rows = {row["workload"]: row for row in measured(tmp_path, "clean", "--sizes", "0.2")}
    assert all(row["ours"] >= 0.95 for name, row in rows.items() if name.startswith("recall"))
    assert rows["precision"]["ours"] == 1
    assert rows["clean 0.2 MB"]["peak_memory_mb"] > 0


def test_bench_clean_stands_beside_rensa(tmp_path):
    pytest.importorskip("rensa")
    rows = measured(tmp_path, "clean", "--against", "rensa")
    assert all(row["theirs"] > 0.9 for row in rows)


def test_a_document_that_goes_without_cause_is_a_mistake():
    texts = ["a b c d e f", "u v w x y z", "a b c d e z", *["u v w x y z"] * 3]
    planted = clean.Planted(texts, 3, [1, 1, 1], [0.05, 0.1, 0.2])
    assert clean.score(planted, np.array([-1, -1, 0, 1, 1, 1]))["precision"] == 1
    assert clean.score(planted, np.array([-1, 0, -1, 0, 0, 0]))["precision"] == 0.75
    assert clean.score(planted, np.array([-1, -1, -1, -1, -1, 1])) == {
        "recall, 5% of words changed": 0,
        "recall, 10% of words changed": 0,
        "recall, 20% of words changed": 1,
        "precision": 1,
    }
