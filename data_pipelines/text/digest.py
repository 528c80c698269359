"""Hashes of texts and files."""

import hashlib
from pathlib import Path


def text_hash(text: str, purpose: str) -> int:
    """64 bits of a text. Two purposes give unrelated bits, so that one choice by hash does not bias another."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=purpose.encode()).digest(), "big")


def file_hash(path: Path) -> str:
    """The sha256 of a file, read in blocks."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
