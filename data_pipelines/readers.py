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

from data_pipelines.config import CorpusConfig

BLOCK_BYTES = 1 << 20
MAX_CHARS = 1 << 20
"""A longer document is handed out in parts, so that one line of 50 MB costs no more memory than a page."""
MAX_RECORD_BYTES = 1 << 28
"""A longer JSON line or CSV record is refused: it must be held at once to be read."""


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
    name = path.name.removesuffix(".gz")
    return READERS.get(Path(name).suffix.lower(), None if exact else read_text)


def read_text(path: Path, config: CorpusConfig) -> Iterator[Piece]:
    """Plain text, its documents separated by blank lines or by every line break."""
    by_line = config.documents == "line"
    held: list[str] = []
    size, first, continued, glued = 0, 1, False, False
    for line in read_lines(path, config.errors, cut_long=True):
        blank = line.ends and not glued and not line.text.strip()
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
            yield from _piece(held, f"{path}:{first}", continued)
            continued = not border
            held, size = [], 0
        elif border:
            continued = False
    if held:
        yield from _piece(held, f"{path}:{first}", continued)


def read_json_lines(path: Path, config: CorpusConfig) -> Iterator[Piece]:
    """One JSON object a line, the document in the named field."""
    for line in read_lines(path, config.errors, cut_long=False):
        if not line.text.strip():
            continue
        place = f"{path}:{line.number}"
        try:
            record = json.loads(line.text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{place}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(
                f"{place}: expected an object with the field {config.field!r}, got {type(record).__name__}"
            )
        yield from _field(record, config.field, place)


def read_csv(path: Path, config: CorpusConfig) -> Iterator[Piece]:
    """CSV with a header line, the document in the named column."""
    csv.field_size_limit(MAX_RECORD_BYTES)
    lines = (line.text + "\n" for line in read_lines(path, config.errors, cut_long=False))
    records = csv.DictReader(lines, strict=True)
    first = 1
    try:
        for record in records:
            # A quoted field may hold line breaks: the record starts where the one before it ended.
            place, first = f"{path}:{first + 1}", records.line_num
            yield from _field(record, config.field, place)
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
            file = pyarrow.parquet.ParquetFile(unpacked if path.suffix == ".gz" else path)
            if config.field not in file.schema_arrow.names:
                raise ValueError(_no_field(f"{path}", config.field, file.schema_arrow.names))
            row = 0
            for batch in file.iter_batches(batch_size=256, columns=[config.field]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    yield from _field({config.field: value}, config.field, f"{path}:row {row}")
        except pyarrow.ArrowException as error:
            raise ValueError(f"{path}: not readable as Parquet: {error}") from None


def read_hub(name: str, config: CorpusConfig) -> Iterator[Piece]:
    """A Hugging Face dataset, NAME[:SPLIT[:CONFIG]], streamed."""
    import datasets

    datasets.disable_progress_bars()
    path, _, rest = name.partition(":")
    split, _, subset = rest.partition(":")
    try:
        if not Path(path).exists():
            _check_hub_is_reachable()
        rows = datasets.load_dataset(path, subset or None, split=split or "train", streaming=True)
    except Exception as error:  # the library raises a dozen kinds, from its own and from three HTTP stacks
        raise ValueError(
            f"the Hugging Face dataset {path!r} cannot be opened ({type(error).__name__}: {_first_line(error)}); "
            f"without a network, save it elsewhere as Parquet or JSON Lines and give that file's path"
        ) from None
    for number, record in enumerate(rows, start=1):
        yield from _field(record, config.field, f"hf:{name}:row {number}")


def _check_hub_is_reachable() -> None:
    """Fail at once without a network, where the library would try again for half a minute."""
    import socket
    from urllib.parse import urlsplit

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return  # the library then looks at its cache alone
    address = urlsplit(constants.ENDPOINT)
    port = address.port or {"http": 80}.get(address.scheme, 443)
    socket.create_connection((address.hostname, port), timeout=5).close()


READERS: dict[str, Callable[[Path, CorpusConfig], Iterator[Piece]]] = {
    ".txt": read_text,
    ".jsonl": read_json_lines,
    ".csv": read_csv,
    ".parquet": read_parquet,
}


def read_lines(path: Path, errors: str, cut_long: bool) -> Iterator[Line]:
    """The lines of a text file: UTF-8 checked, a BOM dropped, CRLF and lone CR taken as line breaks.

    With `cut_long` a very long line comes in parts, cut at a space where there is one.
    """
    number = 1
    with _open_bytes(path) as stream:
        for block, ends in _blocks(stream, path, cut_long):
            text = _decode(block, path, number, errors)
            text = text.replace("\r\n", "\n").replace("\r", "\n")
            lines = text.split("\n")
            if ends and not lines[-1]:
                lines.pop()  # what follows the last line break
            for line in lines[:-1]:
                yield Line(line, number, True)
                number += 1
            if lines:
                yield Line(lines[-1], number, ends)
                number += ends


def _blocks(stream: IO[bytes], path: Path, cut_long: bool) -> Iterator[tuple[bytes, bool]]:
    """Blocks that end at a line break, or inside a long line at a space or at least between two characters."""
    held = stream.read(BLOCK_BYTES)
    if held.startswith(b"\x1f\x8b"):
        raise ValueError(f"{path}:1: these are gzip bytes in a file not named .gz; rename it to {path.name}.gz")
    held = held.removeprefix(codecs.BOM_UTF8)
    while chunk := stream.read(BLOCK_BYTES):
        held += chunk
        cut = held.rfind(b"\n") + 1
        ends = bool(cut)
        if not cut:
            if not cut_long:
                if len(held) > MAX_RECORD_BYTES:
                    raise ValueError(f"{path}: a record is longer than {MAX_RECORD_BYTES >> 20} MB")
                continue
            cut = _cut_inside(held)
        yield held[:cut], ends
        held = held[cut:]
    if held:
        yield held, True


def _cut_inside(block: bytes) -> int:
    """Where to cut a block without line break: after its last space, else before its last whole character."""
    space = block.rfind(b" ", len(block) // 2)
    cut = space + 1 if space >= 0 else len(block) - 4
    while 0 < cut < len(block) and (block[cut] & 0xC0 == 0x80 or block[cut - 1 : cut] == b"\r"):
        cut -= 1
    return max(cut, 1)


def _decode(block: bytes, path: Path, number: int, errors: str) -> str:
    if errors == "replace":
        return block.decode("utf-8", "replace").replace("\0", "�")
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        line = number + _line_breaks(block[: error.start])
        raise ValueError(
            f"{path}:{line}: not UTF-8 (byte 0x{block[error.start]:02x}); convert the file, "
            f"or replace such bytes with errors=replace"
        ) from None
    if "\0" in text:
        line = number + _line_breaks(text[: text.index("\0")].encode())
        raise ValueError(f"{path}:{line}: a NUL character; remove it, or replace it with errors=replace")
    return text


def _line_breaks(block: bytes) -> int:
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")


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


def _piece(lines: list[str], place: str, continued: bool) -> Iterator[Piece]:
    text = "\n".join(lines)
    if text.strip():
        yield Piece(text, place, continued)


def _field(record: dict, field: str, place: str) -> Iterator[Piece]:
    if field not in record:
        raise ValueError(_no_field(place, field, list(record)))
    text = record[field]
    if text is None:
        return
    if not isinstance(text, str):
        raise ValueError(f"{place}: the field {field!r} holds {type(text).__name__}, not text")
    for start in range(0, len(text), MAX_CHARS):
        part = text[start : start + MAX_CHARS]
        if part.strip():
            yield Piece(part, place, start > 0)


def _no_field(place: str, field: str, names: list) -> str:
    shown = ", ".join(str(name) for name in names if name is not None) or "none"
    return f"{place}: no field {field!r}; the fields are {shown} (choose one with field=NAME)"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
