"""Labeled files and datasets to sentences: words with a tag each, or a text with one label.

Every sentence knows file and line of each word, so that an error about a tag can name its place.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.dataset import dataset_records
from data_pipelines.labels.formats import FORMATS, LabelFormat
from data_pipelines.labels.records import ONE_LABEL, LabelKind, sentences_of_records, texts_of_records
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import Line, read_lines, suffix_of


def read_tagged(source: str, config: TaggedConfig, *, split: str = "train", tagged: bool = True) -> Iterator[Sentence]:
    """The sentences of a file (also .gz) of any label format, of all .ann files in a folder, or of a dataset (hf:NAME
    or a folder). A file with an unknown suffix is read as CoNLL.

    `split` is the part of a dataset that is read if its name says none. Without `tagged` the tags may be missing.
    """
    if marked := sorted(map(str, Path(source).glob("*.ann"))):
        return chain.from_iterable(read_tagged(file, config, tagged=tagged) for file in marked)
    if is_dataset(source):
        return sentences_of_records(dataset_records(source, split), source, config, tagged)
    found, lines = _format_of(source, ".conll"), lines_of(source, config)
    if found.sentences:
        return found.sentences(lines, source, config, tagged)
    assert found.records is not None
    return sentences_of_records(found.records(lines, source, config), source, config, tagged)


def read_labeled_texts(
    source: str,
    config: TaggedConfig,
    *,
    split: str = "train",
    tagged: bool = True,
    kind: LabelKind = ONE_LABEL,
    paired: bool = False,
) -> Iterator[Sentence]:
    """Texts, or pairs of them, with a label, several or a number, of a file of records or a dataset. A file with an
    unknown suffix is read as JSON Lines."""
    if is_dataset(source):
        return texts_of_records(dataset_records(source, split), source, config, tagged, kind, paired)
    found, lines = _format_of(source, ".jsonl"), lines_of(source, config)
    if not found.records:
        known = " ".join(name for name in FORMATS if name[0] == "." and FORMATS[name].records)
        raise ValueError(f"{source}: a {suffix_of(source)} file holds no texts with a label; give one of {known}")
    return texts_of_records(found.records(lines, source, config), source, config, tagged, kind, paired)


def check_source(source: str) -> None:
    """Refuse a source that is neither a dataset on the hub nor a path here. Nothing is opened and no network is
    used."""
    path = Path(source)
    if not source.startswith("hf:") and not path.is_file() and not path.is_dir():
        hint = f"; for the Hugging Face dataset of that name write hf:{source}" if "." not in path.name else ""
        raise ValueError(f"there is no file {source!r}{hint}")


def is_dataset(source: str) -> bool:
    return source.startswith("hf:") or Path(source).is_dir()


def _format_of(source: str, usual: str) -> LabelFormat:
    suffix = suffix_of(source)
    return FORMATS[suffix if suffix in FORMATS else usual]


def lines_of(source: str, config: TaggedConfig) -> Iterator[Line]:
    """The lines of a labeled file; one that is not there is refused."""
    check_source(source)
    return read_lines(Path(source), config.errors, cut_long=False, encoding=config.encoding)
