"""Nothing enters but this Python installation; a corpus of its documentation strings leaves, for demos without a
download: the standard library's and those of the installed dependencies."""

import ast
import inspect
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

_PACKAGES = ("torch", "numpy", "accelerate", "datasets", "tokenizers", "huggingface_hub", "pyarrow", "rich")
_WRAPPED = re.compile(r"(?<=\S)[ \t]*\n[ \t]*(?=\S)")
_SECTION = re.compile(r"\s*\b(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?|See Also)\b\s*(:|-{3,})")
_PROSE = re.compile(r"[A-Z][^\n]{30,}[.!?:]")


def write_demo_corpus(path: Path, max_bytes: int = 8_000_000) -> int:
    """Write documentation strings, a paragraph a line and a blank line between documents; return their number."""
    count, size, seen = 0, 0, set()
    with open(path, "w", encoding="utf-8") as file:
        for docstring in _docstrings():
            text = "\n".join(_paragraphs(docstring))
            if text and text not in seen:
                seen.add(text)
                size += file.write(text + "\n\n")
                count += 1
            if size >= max_bytes:
                break
    return count


def _docstrings() -> Iterator[str]:
    folders = [Path(sysconfig.get_path("stdlib"))]
    folders += [Path(sysconfig.get_path("purelib")) / package for package in _PACKAGES]
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            if not {"test", "tests", "testing", "site-packages"} & set(file.relative_to(folder).parts):
                yield from _docstrings_of(file)


def _docstrings_of(file: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's escape sequences
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return  # a template or a test of the parser itself, not a module
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring and len(docstring) > 40:
                yield docstring


def _paragraphs(docstring: str) -> Iterator[str]:
    """The prose of a docstring: wrapped lines joined, tables, signatures and examples left out."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        text = _SECTION.split(_WRAPPED.sub(" ", block.strip()))[0]
        if _PROSE.match(text) and ">>>" not in text and text.isprintable():
            yield text
