"""Texts as files of every format hold them."""

import csv
import io
import json

import pyarrow
import pyarrow.parquet


def encoded(suffix: str, records: list[str]) -> bytes:
    """A file with this suffix: a document a record, numbered where the format has fields."""
    if suffix == ".txt":
        return "\n\n".join(records).encode()
    if suffix == ".jsonl":
        return "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(records)).encode()
    if suffix == ".csv":
        file = io.StringIO()
        csv.writer(file).writerows([("id", "text"), *enumerate(records)])
        return file.getvalue().encode()
    table = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"id": range(len(records)), "text": records}), table)
    return table.getvalue()
