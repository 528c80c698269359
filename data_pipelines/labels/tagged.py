"""A labeled file or dataset enters, sentences leave: words with a tag each, or a text with one label.

Every sentence knows file and line of each word, so that whatever is wrong with a tag later can be said with its place.
"""

from collections.abc import Iterator
from pathlib import Path

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.dataset import dataset_records
from data_pipelines.labels.formats import FORMATS, Reader
from data_pipelines.labels.records import sentences_of_records, texts_of_records
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import read_lines, suffix_of


def read_tagged(source: str, config: TaggedConfig, *, split: str = "train", tagged: bool = True) -> Iterator[Sentence]:
    """The sentences of a file of any format that holds words with tags (also as .gz), or of a dataset (hf:NAME or a
    folder). A suffix that says nothing is CoNLL.

    `split` is the part of a dataset that is read where its name says none. Without `tagged` the tags may be missing.
    """
    if _is_dataset(source):
        return sentences_of_records(dataset_records(source, split), source, config, tagged)
    suffix = suffix_of(source)
    read = FORMATS[suffix].sentences if suffix in FORMATS else None
    return _read_file(read or FORMATS[".conll"].sentences, source, config, tagged)


def read_labeled_texts(
    source: str, config: TaggedConfig, *, split: str = "train", tagged: bool = True
) -> Iterator[Sentence]:
    """Texts with one label each, of a file of any format that holds them, or of a dataset. A suffix that says nothing
    is JSON Lines."""
    if _is_dataset(source):
        return texts_of_records(dataset_records(source, split), source, config, tagged)
    suffix = suffix_of(source)
    read = FORMATS[suffix].texts if suffix in FORMATS else None
    return _read_file(read or FORMATS[".jsonl"].texts, source, config, tagged)


def check_source(source: str) -> None:
    """Refuse what is neither a dataset on the hub nor here. Nothing is opened and no network is used."""
    path = Path(source)
    if not source.startswith("hf:") and not path.is_file() and not path.is_dir():
        hint = f"; for the Hugging Face dataset of that name write hf:{source}" if "." not in path.name else ""
        raise ValueError(f"there is no file {source!r}{hint}")


def _is_dataset(source: str) -> bool:
    return source.startswith("hf:") or Path(source).is_dir()


def _read_file(read: Reader | None, source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    assert read is not None
    check_source(source)
    return read(read_lines(Path(source), config.errors, cut_long=False), source, config, tagged)
