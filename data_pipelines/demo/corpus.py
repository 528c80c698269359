"""The sources of this Python installation as a corpus and, because the grammar gives the answers, as labeled sentences.
So the demo needs no download, and the repository holds no text of others."""

import re
import sysconfig
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from data_pipelines import durable
from data_pipelines.demo.roles import TaggedCode, tagged_functions
from data_pipelines.text.digest import text_hash

CORPUS, TRAIN, DEV = "corpus.txt", "train.conll", "dev.conll"
MAX_TRAIN, MAX_DEV = 100, 150
"""Labeled functions: few, as in most real tasks, so that pretraining makes a difference."""

_PACKAGES = (
    *("accelerate", "datasets", "fsspec", "huggingface_hub", "jinja2", "networkx", "numpy", "pandas", "rich"),
    *("safetensors", "setuptools", "tokenizers", "torch"),
)
_TESTS = {"test", "tests", "testing", "idle_test", "site-packages"}
_PER_MODULE = 2
_COMMENT_OR_STRING = re.compile(
    r"#[^\n]*|(?:\b[rbuf]{1,2})?"
    r'(?:"""(?:\\.|.)*?"""|' + r"'''(?:\\.|.)*?'''|" + r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*')",
    re.DOTALL | re.IGNORECASE,
)
_DEFINITION = re.compile(r"\n(?= {0,4}(?:def|class|async def) )")


class Module(NamedTuple):
    name: str
    """The file's path below its library's parent folder."""
    code: str
    """Without comments and blank lines; every string is empty."""

    @property
    def held_out(self) -> bool:
        return text_hash(self.name, "demo dev") % 10 == 0


class DemoSizes(NamedTuple):
    documents: int
    train: int
    dev: int


def write_demo_data(folder: Path, max_bytes: int = 8_000_000) -> DemoSizes:
    """Write the corpus (a blank line between functions) and two files of labeled functions.

    No module is in both files, and modules of dev are not in the corpus either. The corpus is written last: where it
    is, all files are.
    """
    modules = list(read_modules(max_bytes))
    known = [module for module in modules if not module.held_out]
    train = list(islice(_labeled(known), MAX_TRAIN))
    dev = list(islice(_labeled(module for module in modules if module.held_out), MAX_DEV))
    documents = [text for module in known for text in _DEFINITION.split(module.code)]
    for name, parts in (
        (TRAIN, map(_conll, train)),
        (DEV, map(_conll, dev)),
        (CORPUS, (f"{text.strip()}\n\n" for text in documents)),
    ):
        durable.replace_file(folder / name, "".join(parts).encode())
    return DemoSizes(len(documents), len(train), len(dev))


def read_modules(max_bytes: int) -> Iterator[Module]:
    """Modules in the order of a hash of their names, so from all libraries, until there is enough."""
    size = 0
    for name, file in sorted(_files(), key=lambda named: (text_hash(named[0], "demo order"), named[0])):
        source = file.read_text(encoding="utf-8", errors="replace")
        if source.isascii():
            code = _COMMENT_OR_STRING.sub(lambda match: "" if match[0].startswith("#") else '""', source)
            code = "".join(f"{line}\n" for line in map(str.rstrip, code.splitlines()) if line)
            yield Module(name, code)
            size += len(code)
        if size >= max_bytes:
            return


def _files() -> Iterator[tuple[str, Path]]:
    folders = [Path(sysconfig.get_path("stdlib"))]
    folders += [Path(sysconfig.get_path("purelib")) / package for package in _PACKAGES]
    for folder in folders:
        for file in folder.rglob("*.py"):
            place = file.relative_to(folder)
            if not _TESTS & set(place.parts):
                yield f"{folder.name}/{place.as_posix()}", file


def _labeled(modules: Iterable[Module]) -> Iterator[TaggedCode]:
    """A few functions of each module, so that no module dominates."""
    for module in modules:
        yield from islice(tagged_functions(module.code), _PER_MODULE)


def _conll(sentence: TaggedCode) -> str:
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(*sentence, strict=True)) + "\n"
