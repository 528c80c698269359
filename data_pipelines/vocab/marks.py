"""How the tokens of a vocabulary show where words start."""

from collections.abc import Mapping
from functools import cache

INSIDE = "##"
"""WordPiece writes this before a token that continues a word."""
BYTE_LEVEL = "Ġ"
"""Byte-level BPE writes a space as this, so most words start with it."""
SENTENCEPIECE = "▁"
"""SentencePiece writes a space as this."""
SPACES = (BYTE_LEVEL, SENTENCEPIECE)


def word_mark(vocabulary: Mapping[str, int]) -> str | None:
    """The mark that a vocabulary uses; None where its tokens do not show words."""
    # In a vocabulary of text without spaces hardly any token has the mark, but all 256 bytes are tokens.
    if _byte_of_character().keys() <= vocabulary.keys():
        return BYTE_LEVEL
    # The most frequent mark decides: a byte-level vocabulary has a few tokens like "####" too.
    shown = {mark: sum(token.startswith(mark) and token != mark for token in vocabulary) for mark in (INSIDE, *SPACES)}
    mark = max(shown, key=lambda mark: shown[mark])
    return mark if shown[mark] else None


def token_bytes(token: str) -> bytes:
    """The bytes of a byte-level token."""
    return bytes(_byte_of_character().get(char, 0x3F) for char in token)


@cache
def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes printable bytes as themselves and the others from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
