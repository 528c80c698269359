"""CSV and TSV with a header line: a text and its label in each row. A TSV file of words with tags is CoNLL."""

import csv
from collections.abc import Iterable, Iterator

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.formats.conll import read_columns
from data_pipelines.labels.records import Record, texts_of_records
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import Line


def _read_csv(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    return texts_of_records(_records(lines, source, ","), source, config, tagged)


def _read_tsv(lines: Iterable[Line], source: str, config: TaggedConfig, tagged: bool) -> Iterator[Sentence]:
    return texts_of_records(_records(lines, source, "\t"), source, config, tagged)


def _records(lines: Iterable[Line], source: str, delimiter: str) -> Iterator[Record]:
    records = csv.DictReader((line.text + "\n" for line in lines), delimiter=delimiter, strict=delimiter == ",")
    try:
        for record in records:
            if None in record or None in record.values():
                raise ValueError(f"{source}:{records.line_num}: another number of columns than the header line")
            yield record, records.line_num
    except csv.Error as error:
        raise ValueError(f"{source}:{records.line_num}: not CSV: {error}") from None


CSV = LabelFormat(texts=_read_csv)
TSV = LabelFormat(sentences=read_columns, texts=_read_tsv)
