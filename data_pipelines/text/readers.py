"""One file enters, its documents leave as pieces of text with their place: plain text, JSON Lines, CSV, Parquet."""

import codecs
import csv
import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from data_pipelines.text.config import CorpusConfig

BLOCK_BYTES = 1 << 17
MAX_CHARS = 1 << 17
"""A longer document is handed out in parts, so that one line of 50 MB costs no more memory than a page. It is cut
before white space where there is some, so that the parts have the words, and mostly the tokens, of the whole."""
MAX_RECORD_BYTES = 1 << 28
"""A longer JSON line or CSV record is refused: it must be held at once to be read."""
_REPLACE = "set errors: --errors replace or data.errors=replace"


class Piece(NamedTuple):
    """A document, or the next part of one."""

    text: str
    place: str
    continued: bool


class Line(NamedTuple):
    """A line without its line break, or a part of a very long one."""

    text: str
    number: int
    ends: bool
    """Whether the line ends here."""


def reader_of(path: Path, exact: bool = False) -> Any:
    """The reader for a file's name; a name that says nothing is plain text, or None when `exact`."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix in NOT_TEXT and not exact:
        raise ValueError(
            f"{path}: a {suffix} file is no text that can be read; "
            f"convert it to one of {' '.join([*READERS, *ALIASES])} (each also as .gz)"
        )
    return READERS.get(ALIASES.get(suffix, suffix), None if exact else read_text)


def read_text(path: Path, config: CorpusConfig) -> Iterator[Piece]:
    """Plain text, its documents separated by blank lines or by every line break."""
    by_line = config.documents == "line"
    held: list[str] = []
    size, first, continued, glued, only_blanks = 0, 1, False, False, True
    for line in read_lines(path, config.errors, cut_long=True):
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


def read_json_lines(path: Path, config: CorpusConfig) -> Iterator[Piece]:
    """One JSON object a line, the document in the named field."""
    for line in read_lines(path, config.errors, cut_long=False):
        if not line.text.strip():
            continue
        place = f"{path}:{line.number}"
        try:
            record = json.loads(line.text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{place}: not JSON: {error} (each line must be an object of its own)") from None
        if not isinstance(record, dict):
            raise ValueError(
                f"{place}: expected an object with the field {config.field!r}, got {type(record).__name__}; "
                f"write one object a line"
            )
        del line
        yield from pieces_of_field(record, config, place)


def read_csv(path: Path, config: CorpusConfig) -> Iterator[Piece]:
    """CSV with a header line, the document in the named column."""
    csv.field_size_limit(MAX_RECORD_BYTES)
    lines = (line.text + "\n" for line in read_lines(path, config.errors, cut_long=False))
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
                raise ValueError(_no_field(place, config.field, record))
    except csv.Error as error:
        raise ValueError(f"{path}:{records.line_num}: not CSV: {error}") from None


def read_parquet(path: Path, config: CorpusConfig) -> Iterator[Piece]:
    """Parquet, the document in the named column, a batch of rows at a time."""
    import pyarrow
    import pyarrow.parquet

    with tempfile.TemporaryDirectory() as folder:
        if path.suffix == ".gz":  # Parquet is read from its end, which gzip cannot do
            unpacked = Path(folder) / "unpacked.parquet"
            with _open_bytes(path) as source, open(unpacked, "wb") as target:
                shutil.copyfileobj(source, target)
        try:
            file = pyarrow.parquet.ParquetFile(unpacked if path.suffix == ".gz" else path, buffer_size=BLOCK_BYTES)
            if config.field not in file.schema_arrow.names:
                raise ValueError(_no_field(f"{path}", config.field, file.schema_arrow.names))
            row = 0
            for batch in file.iter_batches(batch_size=16, columns=[config.field]):
                for value in batch.column(0):
                    row += 1
                    yield from pieces_of_field({config.field: _bytes_or_value(value)}, config, f"{path}:row {row}")
        except (pyarrow.ArrowException, OSError) as error:  # damage inside a page is told as an OSError
            raise ValueError(f"{path}: not readable as Parquet: {' '.join(str(error).split())}") from None


READERS: dict[str, Callable[[Path, CorpusConfig], Iterator[Piece]]] = {
    ".txt": read_text,
    ".jsonl": read_json_lines,
    ".csv": read_csv,
    ".parquet": read_parquet,
}
ALIASES = {".json": ".jsonl", ".ndjson": ".jsonl"}
"""Other names of the same."""

NOT_TEXT = frozenset(
    ".tsv .zst .bz2 .xz .zip .tar .tgz .arrow .html .htm .pdf .bin .pt .pkl .docx".split()  # noqa: SIM905
)
"""Names that surely hold something else: read as plain text they would fill a corpus with noise."""


def read_lines(path: Path, errors: str, cut_long: bool) -> Iterator[Line]:
    """The lines of a text file: UTF-8 checked, a BOM dropped, CRLF and lone CR taken as line breaks.

    With `cut_long` a very long line comes in parts, cut before a space where there is one.
    """
    number = 1
    with _open_bytes(path) as stream:
        for block, ends in _blocks(stream, path, cut_long):
            lines = _decode(block, errors, f"{path}", number).split("\n")
            del block  # what may be a record of hundreds of megabytes is held by nobody who is done with it
            if ends and not lines[-1]:
                lines.pop()  # what follows the last line break
            for line in lines[:-1]:
                yield Line(line, number, True)
                number += 1
            if lines:
                yield Line(lines.pop(), number, ends)
                number += ends


def _blocks(stream: IO[bytes], path: Path, cut_long: bool) -> Iterator[tuple[bytes, bool]]:
    """Blocks that end at a line break, or inside a long line at a space or at least between two characters."""
    held = stream.read(BLOCK_BYTES)
    if held.startswith(b"\x1f\x8b"):
        raise ValueError(f"{path}:1: these are gzip bytes in a file not named .gz; rename it to {path.name}.gz")
    held = held.removeprefix(codecs.BOM_UTF8)
    # A record that must be held at once is read in blocks that double, lest it is copied for every block.
    while chunk := stream.read(BLOCK_BYTES if cut_long else max(BLOCK_BYTES, len(held))):
        held += chunk
        # A carriage return at the very end may be half of a line break.
        cut = held.rfind(b"\n") + 1 or held.rfind(b"\r", 0, -1) + 1
        ends = bool(cut)
        if not cut:
            if not cut_long:
                if len(held) > MAX_RECORD_BYTES:
                    raise ValueError(f"{path}: a line is longer than {MAX_RECORD_BYTES >> 20} MB; split its text")
                continue
            cut = _cut_inside(held)
        block, held = [held[:cut]], held[cut:]
        if cut:
            yield block.pop(), ends
    block, held = [held], b""
    if block[0]:
        yield block.pop(), True


def _cut_inside(block: bytes) -> int:
    """Where to cut a block without line break: before its last space, which to a byte-level tokenizer is part of the
    word behind it, else before its last whole character. The end stays, so that the line ends in the next block."""
    last = len(block) - 1
    cut = block.rfind(b" ", last // 2, last)
    if cut > 0:
        return cut
    return next((at for at in range(last, max(last - 4, -1), -1) if block[at] & 0xC0 != 0x80), last)


def _decode(data: bytes, errors: str, place: str, line: int | None = None) -> str:
    """Text whose line breaks are all \\n. An error names the place, with the line where `line` is the first one."""

    def where(before: bytes) -> str:
        breaks = before.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")
        return place if line is None else f"{place}:{line + breaks}"

    try:
        text = data.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where(data[: error.start])}: not UTF-8 (byte 0x{data[error.start]:02x}); convert the file, "
            f"or replace such bytes ({_REPLACE})"
        ) from None
    if "\0" in text:
        if errors == "strict":
            before = data[: data.index(b"\0")]
            raise ValueError(f"{where(before)}: a NUL character; remove it, or replace it ({_REPLACE})")
        text = text.replace("\0", "\ufffd")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _open_bytes(path: Path) -> IO[bytes]:
    if path.suffix != ".gz":
        return open(path, "rb")
    return _CheckedGzip(path)  # type: ignore[return-value]


class _CheckedGzip:
    """A gzip file whose damage is reported with its name."""

    def __init__(self, path: Path):
        self._path, self._file = path, gzip.open(path, "rb")  # noqa: SIM115

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{self._path}: damaged or not gzip: {error}") from None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()


def _unless_blank(lines: list[str]) -> str:
    text = "\n".join(lines)
    return text if text.strip() else ""


def pieces_of_field(record: dict, config: CorpusConfig, place: str) -> Iterator[Piece]:
    """The document in a record's field, which is taken out, in parts where it is long."""
    if config.field not in record:
        raise ValueError(_no_field(place, config.field, list(record)))
    text = record.pop(config.field)
    if text is None:
        return
    if not isinstance(text, (str, bytes)):
        raise ValueError(f"{place}: the field {config.field!r} holds {type(text).__name__}, not text")
    # JSON can spell out halves of characters ("\\ud800"), which the decoder then meets as invalid bytes.
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    text = _decode(data, config.errors, place)
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
    """Where the part that starts here ends: before the last white space that fits, unless that is far away."""
    end = start + MAX_CHARS
    if end >= len(text) or text[end].isspace():
        return end
    half = text[end - MAX_CHARS // 2 : end + 1]
    word = half.rsplit(maxsplit=1)[-1]
    return end if len(word) == len(half) else end - len(word)


def _bytes_or_value(value: Any) -> Any:
    """A cell of an Arrow table, text as the bytes it is stored in: they need not be UTF-8."""
    import pyarrow

    is_text = pyarrow.types.is_string(value.type) or pyarrow.types.is_large_string(value.type)
    return value.as_buffer().to_pybytes() if is_text and value.is_valid else value.as_py()


def _no_field(place: str, field: str, names: list) -> str:
    shown = ", ".join(str(name) for name in names if name is not None) or "none"
    return f"{place}: no field {field!r}; the fields are {shown} (set field: --field NAME or data.field=NAME)"
