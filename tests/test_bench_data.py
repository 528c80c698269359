"""The benches of the data line check their own work, and write rows that a program can read."""

import json

import pytest

from bertkit.bench import collator, prepare
from bertkit.bench.measure import JSON_KEYS, interleaved
from bertkit.cli import main


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    def once(candidates, rounds, repeats=1):
        return interleaved(candidates, rounds=1)

    generate = prepare.generated_documents
    monkeypatch.setattr(collator, "interleaved", once)
    monkeypatch.setattr(prepare, "interleaved", once)
    monkeypatch.setattr(prepare, "generated_documents", lambda num_chars: generate(20_000, num_words=500))


def measured(tmp_path, *argv) -> list[dict]:
    assert main(["bench", *argv, "--quick", "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    for row in rows:
        assert tuple(row) == JSON_KEYS
        assert row["ours"] > 0
    return rows


def test_bench_collator_measures_every_shape_and_form(tmp_path):
    rows = measured(tmp_path, "collator")
    assert len({row["workload"] for row in rows}) == len(rows) == 12
    assert all(row["unit"] == "tokens/s" and row["theirs"] is None and row["ratio"] is None for row in rows)


def test_bench_collator_stands_beside_transformers(tmp_path):
    pytest.importorskip("transformers")
    for row in measured(tmp_path, "collator", "--against", "transformers"):
        assert row["ratio"] == pytest.approx(row["ours"] / row["theirs"])


def test_bench_prepare_stands_beside_bare_encoding(tmp_path):
    rows = measured(tmp_path, "prepare")
    assert [row["workload"].split(",")[0] for row in rows] == ["prepare wordpiece", "prepare bpe"]
    assert all(row["unit"] == "MB/s" and row["ratio"] > 0 for row in rows)
