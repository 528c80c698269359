"""Finds the file of a tokenizer, without heavy imports."""

import re
from pathlib import Path


def find_tokenizer(path: Path) -> Path:
    """The file itself, or a folder's tokenizer.json, or else its vocab.txt."""
    if found := _files(path):
        return found[0]
    like_a_name = not path.exists() and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(path))
    hint = f"; for that of a model on the Hugging Face hub run `hf download {path} --local-dir DIR` and name DIR"
    raise ValueError(
        f"there is no tokenizer at {path}: expected a tokenizer.json or a folder with one "
        f"or with BERT's vocab.txt ('bertkit tokenizer train' makes one){hint if like_a_name else ''}"
    )


def has_tokenizer(folder: Path) -> bool:
    """Whether `find_tokenizer` would find one."""
    return bool(_files(folder))


def _files(path: Path) -> list[Path]:
    return [file for file in (path, path / "tokenizer.json", path / "vocab.txt") if file.is_file()]
