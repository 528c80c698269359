"""Text files, plain or gzip, to lines of any length."""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from data_pipelines.text.encodings import UTF_8, Utf8Stream, is_utf_8
from data_pipelines.text.stores import StoredFile

BLOCK_BYTES = 1 << 17
MAX_RECORD_BYTES = 1 << 28
"""A longer JSON line or CSV record is refused, because it must be in memory as a whole."""
REPLACE = "set errors: --errors replace or data.errors=replace"
"""How a user reads text with such errors."""


class Line(NamedTuple):
    """A line without its line break, or a part of a very long one."""

    text: str
    number: int
    ends: bool
    """False where more of the line follows."""


def suffix_of(path: Path | StoredFile | str) -> str:
    """The suffix that names a file's format, in lower case and without .gz; a shard of MDS may be packed otherwise."""
    name = re.sub(r"\.mds\.(zstd|zst|bz2|br)$", ".mds", Path(str(path)).name)
    return Path(name.removesuffix(".gz")).suffix.lower()


def read_lines(path: Path | StoredFile, errors: str, cut_long: bool, encoding: str = UTF_8) -> Iterator[Line]:
    """The lines of a file: its encoding is checked, a BOM dropped; CRLF and a lone CR are line breaks too.

    With `cut_long` a very long line comes in parts, cut before a space where there is one.
    """
    number = 1
    with open_bytes(path) as stream:
        text = stream if is_utf_8(encoding) else Utf8Stream(stream, encoding, errors, f"{path}")
        for block, ends in _blocks(text, path, cut_long):
            lines = decode(block, errors, f"{path}", number).split("\n")
            del block  # it may be hundreds of megabytes: free it before the lines are used
            if ends and not lines[-1]:
                lines.pop()  # nothing follows the last line break
            for line in lines[:-1]:
                yield Line(line, number, True)
                number += 1
            if lines:
                yield Line(lines.pop(), number, ends)
                number += ends


def line_break(path: Path, encoding: str) -> str:
    """What ends the first line of a file, "\\r\\n" or "\\n"."""
    with open_bytes(path) as stream:
        text = stream if is_utf_8(encoding) else Utf8Stream(stream, encoding, "replace", f"{path}")
        first, ended, _ = text.read(BLOCK_BYTES).partition(b"\n")
        return "\r\n" if ended and first.endswith(b"\r") else "\n"


def _blocks(stream: IO[bytes] | Utf8Stream, path: Path | StoredFile, cut_long: bool) -> Iterator[tuple[bytes, bool]]:
    """Blocks that end at a line break; inside a long line, before a space or at least between two characters."""
    held = stream.read(BLOCK_BYTES)
    if held.startswith(b"\x1f\x8b"):
        raise ValueError(f"{path}:1: these are gzip bytes in a file not named .gz; rename it to {path.name}.gz")
    held = held.removeprefix(codecs.BOM_UTF8)
    # For a record that must be in memory as a whole, blocks double in size, so that it is not copied for every block.
    while chunk := stream.read(BLOCK_BYTES if cut_long else max(BLOCK_BYTES, len(held))):
        held += chunk
        # A carriage return at the end may be the first half of a line break.
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
    """Where to cut a block without line break: before its last space, because a byte-level tokenizer counts it to the
    next word; else before its last character. Something is left over, so that the line ends in the next block."""
    last = len(block) - 1
    cut = block.rfind(b" ", last // 2, last)
    if cut > 0:
        return cut
    return next((at for at in range(last, max(last - 4, -1), -1) if block[at] & 0xC0 != 0x80), last)


def decode(data: bytes, errors: str, place: str, line: int | None = None) -> str:
    """Bytes to text whose line breaks are all \\n. An error names the place; `line` is the number of the first line."""

    def where(before: bytes) -> str:
        breaks = before.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")
        return place if line is None else f"{place}:{line + breaks}"

    try:
        text = data.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where(data[: error.start])}: not UTF-8 (byte 0x{data[error.start]:02x}); name its encoding "
            f"(--encoding NAME or data.encoding=NAME), or replace such bytes ({REPLACE})"
        ) from None
    if "\0" in text:
        if errors == "strict":
            before = data[: data.index(b"\0")]
            raise ValueError(f"{where(before)}: a NUL character; remove it, or replace it ({REPLACE})")
        text = text.replace("\0", "\ufffd")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def open_bytes(path: Path | StoredFile) -> Iterator[IO[bytes]]:
    """A file to read, here or on a store, unpacked if it is gzip; damage is reported with its name."""
    try:
        with path.open() if isinstance(path, StoredFile) else open(path, "rb") as packed:
            if path.suffix == ".gz":
                with gzip.open(packed) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield packed
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged or not gzip: {error}") from None
