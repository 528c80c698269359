"""CSV and TSV with a header line: a text and its label in each row. Words with tags are read as CoNLL."""

import csv
from collections.abc import Iterable, Iterator
from functools import partial

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.formats.conll import fill_columns, read_columns
from data_pipelines.labels.sentence import Record
from data_pipelines.text.lines import Line


def _records(lines: Iterable[Line], source: str, config: TaggedConfig, delimiter: str) -> Iterator[Record]:
    records = csv.DictReader((line.text + "\n" for line in lines), delimiter=delimiter, strict=delimiter == ",")
    try:
        for record in records:
            if None in record or None in record.values():
                raise ValueError(f"{source}:{records.line_num}: another number of columns than the header line")
            yield record, records.line_num
    except csv.Error as error:
        raise ValueError(f"{source}:{records.line_num}: not CSV: {error}") from None


CSV = LabelFormat(sentences=read_columns, records=partial(_records, delimiter=","))
TSV = LabelFormat(sentences=read_columns, records=partial(_records, delimiter="\t"), filler=fill_columns)
