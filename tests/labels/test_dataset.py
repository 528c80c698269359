"""Saved datasets are read with the names of their labels."""

import pytest

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.dataset import dataset_records
from data_pipelines.labels.tagged import read_labeled_texts, read_tagged


def test_a_saved_dataset_is_read_with_the_names_of_its_labels(tmp_path):
    datasets = pytest.importorskip("datasets")
    sequence = datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": sequence})
    rows = datasets.Dataset.from_dict({"tokens": [["Anna", "runs"]], "ner_tags": [[1, 0]]}, features=features)
    datasets.DatasetDict({"train": rows, "validation": rows}).save_to_disk(str(tmp_path / "set"))
    assert next(dataset_records(str(tmp_path / "set"), "train")) == (
        {"tokens": ["Anna", "runs"], "ner_tags": ["B-PER", "O"]},
        1,
    )
    (sentence,) = read_tagged(str(tmp_path / "set"), TaggedConfig(), split="validation")
    assert (sentence.words, sentence.tags) == (["Anna", "runs"], ["B-PER", "O"])


def test_a_part_that_a_dataset_lacks_and_a_label_it_hides_are_named(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = datasets.Dataset.from_dict({"text": ["x", "y"], "label": [1, -1]}, features=features)
    datasets.DatasetDict({"train": rows}).save_to_disk(str(tmp_path / "set"))
    with pytest.raises(ValueError, match=r"set.*'validation'.*train"):
        list(read_labeled_texts(str(tmp_path / "set"), TaggedConfig(), split="validation"))
    with pytest.raises(ValueError, match=r"set:2: label.* -1.* 0 to 1"):
        list(read_labeled_texts(str(tmp_path / "set"), TaggedConfig()))
