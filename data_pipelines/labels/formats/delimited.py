"""CSV and TSV with a header line: a text and its label in each row. Words with tags are read as CoNLL."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.formats import LabelFormat
from data_pipelines.labels.formats.conll import fill_columns, read_columns
from data_pipelines.labels.sentence import Record
from data_pipelines.text.lines import Line


def _records(lines: Iterable[Line], source: str, config: TaggedConfig, delimiter: str) -> Iterator[Record]:
    records = csv.DictReader((line.text + "\n" for line in lines), delimiter=delimiter, strict=delimiter == ",")
    before = 1
    try:
        check_header(records.fieldnames or [], source)
        for record in records:
            if None in record or None in record.values():
                raise ValueError(f"{source}:{records.line_num}: another number of columns than the header line")
            if delimiter == "\t" and any("\n" in cell and "\t" in cell for cell in record.values()):
                raise ValueError(
                    f"{source}:{before + 1}: a quote that is not closed takes the lines up to {records.line_num} for "
                    'one cell; write "" for each quote of the text, and one more before and after the text'
                )
            yield record, records.line_num
            before = records.line_num
    except csv.Error as error:
        raise ValueError(f"{source}:{records.line_num}: not CSV: {error}") from None


def check_header(names: Sequence[str], source: str) -> None:
    """Refuses two columns of one name."""
    twice = next((name for index, name in enumerate(names) if name and name in names[:index]), None)
    if twice is not None:
        raise ValueError(f"{source}:1: two columns are called {twice!r}; one of them would be lost")


CSV = LabelFormat(sentences=read_columns, records=partial(_records, delimiter=","))
TSV = LabelFormat(sentences=read_columns, records=partial(_records, delimiter="\t"), filler=fill_columns)
