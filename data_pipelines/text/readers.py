"""Corpus formats: one reader for each, from a file to pieces of documents."""

import csv
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from data_pipelines.table import Table
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.lines import BLOCK_BYTES, MAX_RECORD_BYTES, decode, open_bytes, read_lines, suffix_of
from data_pipelines.text.stores import StoredFile

MAX_CHARS = 1 << 17
"""A longer document comes in parts, so that a line of 50 MB needs no more memory than a page. It is cut before white
space where there is some, so that the parts together have the same words, and mostly the same tokens."""


class Piece(NamedTuple):
    """A document, or the next part of one."""

    text: str
    place: str
    continued: bool


def reader_of(path: Path | StoredFile, exact: bool = False) -> Any:
    """The reader for a file's suffix; without a known suffix plain text, or None when `exact`."""
    suffix = suffix_of(path)
    if suffix in READERS:
        return READERS[suffix]
    if suffix in NOT_TEXT and not exact:
        raise ValueError(
            f"{path}: a {suffix} file is not a readable text format; "
            f"convert it to one of {' '.join(READERS)} (each also as .gz)"
        )
    return None if exact else read_text


def read_text(path: Path | StoredFile, config: CorpusConfig) -> Iterator[Piece]:
    """Plain text, its documents separated by blank lines or by every line break."""
    by_line = config.documents == "line"
    held: list[str] = []
    size, first, continued, glued, only_blanks = 0, 1, False, False, True
    for line in read_lines(path, config.errors, cut_long=True, encoding=config.encoding):
        only_blanks = (only_blanks or not glued) and not line.text.strip()
        blank = line.ends and only_blanks
        if not blank:
            if not held:
                first = line.number
            if glued and held:
                held[-1] += line.text
            else:
                held.append(line.text)
            size += len(line.text)
        glued = not line.ends
        border = line.ends if by_line else blank
        if size >= MAX_CHARS or (border and held):
            if text := _unless_blank(held):
                yield Piece(text, f"{path}:{first}", continued)
                continued = True
            held, size = [], 0
        if border:
            continued = False
    if text := _unless_blank(held):
        yield Piece(text, f"{path}:{first}", continued)


def read_json_lines(path: Path | StoredFile, config: CorpusConfig) -> Iterator[Piece]:
    """One JSON object a line, the document in the named field."""
    for line in read_lines(path, config.errors, cut_long=False, encoding=config.encoding):
        if not line.text.strip():
            continue
        place = f"{path}:{line.number}"
        try:
            record = json.loads(line.text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{place}: not JSON: {error} (each line must be one object)") from None
        if not isinstance(record, dict):
            raise ValueError(
                f"{place}: expected an object with the field {config.field!r}, got {type(record).__name__}; "
                f"write one object per line"
            )
        del line
        yield from pieces_of_field(record, config, place)


def read_csv(path: Path | StoredFile, config: CorpusConfig) -> Iterator[Piece]:
    """CSV with a header line, the document in the named column."""
    csv.field_size_limit(MAX_RECORD_BYTES)
    lines = (line.text + "\n" for line in read_lines(path, config.errors, cut_long=False, encoding=config.encoding))
    records = csv.reader(lines, strict=True)
    header: list[str] = []
    first = 1
    try:
        for record in records:
            # A quoted field may hold line breaks: the record starts where the one before it ended.
            place, first = f"{path}:{first}", records.line_num + 1
            if not record:
                continue  # a blank line
            if header and len(record) != len(header):
                raise ValueError(
                    f"{place}: {len(record)} columns where the header has {len(header)}; "
                    f'a text that holds commas needs quotes: "..."'
                )
            if header:
                fields = dict(zip(header, record, strict=True))
                del record
                yield from pieces_of_field(fields, config, place)
            elif config.field in record:
                header = record
            else:
                raise ValueError(no_field(place, config.field, record))
    except csv.Error as error:
        raise ValueError(f"{path}:{records.line_num}: not CSV: {error}") from None


def read_parquet(path: Path | StoredFile, config: CorpusConfig) -> Iterator[Piece]:
    """Parquet, the document in the named column, a batch of rows at a time."""
    import pyarrow
    import pyarrow.parquet

    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        file_or_path: Any = opened.enter_context(path.open()) if isinstance(path, StoredFile) else path
        if path.suffix == ".gz":  # Parquet is read from its end, which is impossible inside gzip
            file_or_path = Path(folder) / "unpacked.parquet"
            with open_bytes(path) as source, open(file_or_path, "wb") as target:
                shutil.copyfileobj(source, target)
        try:
            file = pyarrow.parquet.ParquetFile(file_or_path, buffer_size=BLOCK_BYTES)
            if config.field not in file.schema_arrow.names:
                raise ValueError(no_field(f"{path}", config.field, file.schema_arrow.names))
            batches = file.iter_batches(batch_size=16, columns=[config.field])
            yield from pieces_of_column((batch.column(0) for batch in batches), config, path)
        except (pyarrow.ArrowException, OSError) as error:  # pyarrow raises OSError for a damaged page
            raise ValueError(f"{path}: not readable as Parquet: {' '.join(str(error).split())}") from None


READERS: Table[Callable[[Path | StoredFile, CorpusConfig], Iterator[Piece]]] = Table(
    "corpus format",
    {
        ".txt": read_text,
        ".jsonl": read_json_lines,
        ".json": read_json_lines,
        ".ndjson": read_json_lines,
        ".csv": read_csv,
        ".parquet": read_parquet,
        ".arrow": "data_pipelines.text.shards_of_others:read_arrow",
        ".mds": "data_pipelines.text.shards_of_others:read_mds",
    },
)
"""The reader for each suffix. A reader also takes gzip files, as `read_lines` and `open_bytes` do."""

NOT_TEXT = frozenset(
    ".tsv .zst .bz2 .xz .zip .tar .tgz .html .htm .pdf .bin .pt .pkl .docx".split()  # noqa: SIM905
)
"""Suffixes of files that are not plain text: read as such, they would fill a corpus with noise."""


def _unless_blank(lines: list[str]) -> str:
    text = "\n".join(lines)
    return text if text.strip() else ""


def pieces_of_field(record: dict, config: CorpusConfig, place: str) -> Iterator[Piece]:
    """The document in a record's field, in parts where it is long. The field is removed from the record to free
    memory."""
    if config.field not in record:
        raise ValueError(no_field(place, config.field, list(record)))
    text = record.pop(config.field)
    if text is None:
        return
    if config.content == "ids":
        from data_pipelines.text.ids import ids_of_value, text_of_ids  # imports numpy

        ids = text_of_ids(ids_of_value(text, place))
        for start in range(0, len(ids), MAX_CHARS):
            yield Piece(ids[start : start + MAX_CHARS], place, start > 0)
        return
    if not isinstance(text, (str, bytes)):
        raise ValueError(f"{place}: the field {config.field!r} holds {type(text).__name__}, not text")
    # JSON can spell out halves of characters ("\\ud800"), which the decoder then meets as invalid bytes.
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    text = decode(data, config.errors, place)
    del data
    start, continued = 0, False
    while start < len(text):
        end = _end_of_part(text, start)
        part = text[start:end]
        if part.strip():
            yield Piece(part, place, continued)
            continued = True
        start = end


def _end_of_part(text: str, start: int) -> int:
    """Where the part that starts here ends: before the last white space that fits, unless it is far away."""
    end = start + MAX_CHARS
    if end >= len(text) or text[end].isspace():
        return end
    half = text[end - MAX_CHARS // 2 : end + 1]
    word = half.rsplit(maxsplit=1)[-1]
    return end if len(word) == len(half) else end - len(word)


def pieces_of_column(chunks: Iterable[Any], config: CorpusConfig, path: Path | StoredFile) -> Iterator[Piece]:
    """The documents in a column of an Arrow table, which comes in chunks."""
    for row, value in enumerate(chain.from_iterable(chunks), start=1):
        yield from pieces_of_field({config.field: _value_of_cell(value)}, config, f"{path}:row {row}")


def _value_of_cell(value: Any) -> Any:
    """A cell of an Arrow table; text as bytes, which may not be UTF-8, and a list of numbers as an array."""
    import pyarrow

    if pyarrow.types.is_nested(value.type) and value.is_valid and hasattr(value, "values"):
        return value.values.to_numpy(zero_copy_only=False)
    is_text = pyarrow.types.is_string(value.type) or pyarrow.types.is_large_string(value.type)
    return value.as_buffer().to_pybytes() if is_text and value.is_valid else value.as_py()


def no_field(place: str, field: str, names: list) -> str:
    shown = ", ".join(str(name) for name in names if name is not None) or "none"
    return f"{place}: no field {field!r}; the fields are {shown} (set field: --field NAME or data.field=NAME)"
