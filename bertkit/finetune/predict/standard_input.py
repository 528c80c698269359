"""Lines of a pipe or terminal as they come, and whether the next one must be waited for."""

import select
from collections import deque
from collections.abc import Callable, Iterator
from typing import BinaryIO

from data_pipelines.text.encodings import UTF_8
from data_pipelines.text.lines import Line

NAME = "standard input"
_AT_ONCE = 1 << 16


class StandardInput:
    """Lines of a stream. Before waiting for more it calls `before_waiting`, to send the answers to all lines so far:
    the other side may send the next line only after it has them. `line_break` receives what ends the first line."""

    def __init__(
        self,
        stream: BinaryIO,
        before_waiting: Callable[[], object],
        line_break: Callable[[str], object] = lambda ends: None,
    ):
        self._stream, self._before_waiting, self._line_break = stream, before_waiting, line_break
        self._ready: deque[bytes] = deque()

    def must_wait(self) -> bool:
        """Whether no whole line is here and nothing more has arrived."""
        return not self._ready and not _has_more(self._stream)

    def lines(self, encoding: str = UTF_8, errors: str = "strict") -> Iterator[Line]:
        """A BOM is dropped, CRLF and lone CR are taken as line breaks, as in files."""
        if "\n".encode(encoding) != b"\n":
            raise ValueError(
                f"{NAME}: lines of {encoding} cannot be read one by one; convert them first, or name a file"
            )
        number = 0
        for line in self._raw_lines():
            if number == 0:
                line = line.removeprefix(b"\xef\xbb\xbf")
                self._line_break("\r\n" if line.endswith(b"\r") else "\n")
            try:
                text = line.removesuffix(b"\r").decode(encoding, errors)
            except UnicodeDecodeError:
                remedy = "name its encoding (--encoding NAME), or replace such bytes (--errors replace)"
                raise ValueError(f"{NAME}:{number + 1}: not {encoding.upper()}; {remedy}") from None
            for part in text.split("\r"):
                number += 1
                yield Line(part, number, True)

    def _raw_lines(self) -> Iterator[bytes]:
        begun: list[bytes] = []
        while True:
            if not _has_more(self._stream):
                self._before_waiting()
            # One read of what is there; more would wait until so much has come.
            data = self._stream.read1(_AT_ONCE)  # type: ignore[attr-defined]
            if not data:
                break
            *whole, rest = data.split(b"\n")
            if whole:
                whole[0] = b"".join([*begun, whole[0]])
                begun = []
                self._ready.extend(whole)
            begun.append(rest)
            while self._ready:
                yield self._ready.popleft()
        if last := b"".join(begun):
            yield last


def _has_more(stream: BinaryIO) -> bool:
    """Whether a read would give something, or the end, at once."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):  # nothing that can be asked: no file underneath, or a pipe on Windows
        return True
