"""Exact removal of repeated paragraphs, however many were seen."""

import numpy as np
import pytest

from data_pipelines.text import repeats
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.text.readers import MAX_CHARS
from data_pipelines.text.repeats import SeenParagraphs


@pytest.mark.parametrize("recent", [3, 1 << 20])
def test_a_paragraph_is_kept_exactly_once(monkeypatch, recent):
    monkeypatch.setattr(repeats, "_RECENT", recent)  # how many are remembered before they are sorted away
    numbers = np.random.default_rng(0).integers(0, 60, 500).tolist()
    seen, kept = SeenParagraphs(), []
    for start in range(0, len(numbers), 5):
        kept += seen.remove_from("\n".join(f"paragraph {n}" for n in numbers[start : start + 5])).split("\n")
    assert [line for line in kept if line] == list(dict.fromkeys(f"paragraph {n}" for n in numbers))


def test_spaces_around_a_paragraph_do_not_make_it_new():
    assert SeenParagraphs().remove_from("same\n  same \n\nother\nsame") == "same\nother"


def test_repeats_are_removed_across_files_and_empty_documents_vanish(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n")
    (tmp_path / "b.txt").write_text("two\n\ntwo\nfour\n")
    config = CorpusConfig(corpus=[str(tmp_path)], unique_paragraphs=True)
    assert [document.text for document in read_documents(config)] == ["one\ntwo", "three", "four"]


def test_the_rest_of_a_long_document_does_not_join_the_one_before_it(tmp_path):
    """Where the whole first part is a repeat, the second part begins the document."""
    part = "word " * (MAX_CHARS // 5) + "\n"
    (tmp_path / "a.txt").write_text(f"{part}\nother\n\n{part}new\n")
    config = CorpusConfig(corpus=[str(tmp_path / "a.txt")], unique_paragraphs=True)
    assert [(d.text.strip()[-5:], d.continued) for d in read_documents(config)][-2:] == [
        ("other", False),
        ("new", False),
    ]


def test_repeats_by_weight_and_their_removal_exclude_each_other(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(ValueError, match=r"unique_paragraphs.*weight"):
        list(read_documents(CorpusConfig(corpus=[f"{tmp_path / 'a.txt'}@2"], unique_paragraphs=True)))
