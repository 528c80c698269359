"""Two records of what shards were made from: what differs is named, what makes no difference is passed over."""

from pathlib import Path

import pytest

from data_pipelines.rows.provenance import refuse_other


def record(*names: str, modified: int = 0, **changes) -> dict:
    sources = [{"name": name, "sha256": f"of {name}", "modified": modified} for name in names]
    return {"sources": sources, "corpus": {}, "tokenizer": "t" * 64, "prepare": {}, "part": [1, 1]} | changes


def test_a_file_that_was_only_touched_is_the_same():
    refuse_other(record("a.txt", modified=5), record("a.txt"), Path("rows"))


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (record("a.txt"), r"the corpus changed \(b.txt\)"),
        (record("b.txt", "a.txt"), r"the corpus changed \(a.txt, b.txt\)"),
        (record("a.txt", "b.txt", tokenizer="u" * 64), r"tokenizer.*t{12}.*u{12}"),
        (record("a.txt", "b.txt", prepare={"seq_len": 9}), r"seq_len.*None.* 9"),
        (record("a.txt", "b.txt", part=[1, 2]), r"part.*\[1, 1\].*\[1, 2\]"),
    ],
    ids=["fewer", "another order", "tokenizer", "a new setting", "part"],
)
def test_what_changed_is_named(now, told):
    with pytest.raises(ValueError, match=rf"rows .*{told}"):
        refuse_other(now, record("a.txt", "b.txt"), Path("rows"))
