"""Text files of any encoding as streams of UTF-8 bytes, so that all further reading knows one encoding."""

import codecs
from encodings.aliases import aliases
from typing import IO

from data_pipelines.table import nearest

UTF_8 = "utf-8"


def check_encoding(name: str, key: str = "encoding") -> None:
    """Refuse a name that Python has no encoding of text for."""
    try:
        known = codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):  # a ValueError where the name holds a NUL
        known = False
    if not known:
        near = nearest(name.lower().replace("-", "_"), [*aliases, *aliases.values()])
        hint = (
            f"did you mean {near.replace('_', '-')!r}?"
            if near
            else "common ones are latin-1, cp1252, gb18030, utf-16, ..."
        )
        raise ValueError(f"{key}: there is no encoding {name!r}; {hint}")


def is_utf_8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == UTF_8


class Utf8Stream:
    """Bytes of a stream in another encoding, read as UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str, errors: str, place: str):
        self._stream, self._encoding, self._place = stream, encoding, place
        self._decoder = codecs.getincrementaldecoder(encoding)(errors)
        self._line = 1

    def read(self, size: int) -> bytes:
        """Some of the next bytes, about `size`; nothing only at the end."""
        while data := self._stream.read(size):
            if text := self._decode(data):
                return text
        return self._decode(b"", final=True)

    def _decode(self, data: bytes, final: bool = False) -> bytes:
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode(self._encoding, "replace")
            raise ValueError(
                f"{self._place}:{self._line + before.count(chr(10))}: not {self._encoding} (byte "
                f"0x{error.object[error.start]:02x}); name its encoding (--encoding NAME or data.encoding=NAME), or "
                "replace such bytes (--errors replace or data.errors=replace)"
            ) from None
        self._line += text.count("\n")
        return text.encode("utf-8", "replace")
