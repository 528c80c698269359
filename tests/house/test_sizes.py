"""Files, folders and functions stay small enough to be read at one sitting, and nothing goes untested.

What passes a limit asks to become two ideas.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MAX_LINES, MAX_MODULES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 350, 15, 60, 8

EXCEPTIONS = {
    "data_pipelines/masks/collator.py: MaskingCollator.__init__",  # every setting is a keyword, documented there
    "bertkit/model/attention.py: _packed_attention_backward",  # an operator's backward takes what its forward kept
    "bertkit/model/attention.py: _",  # the same operator on tensors without data
}
"""Functions that may be longer, or take more, for the reason beside them."""

FAMILIES_AND_HEADS = {
    *("Bert", "BertConfig", "ModernBert", "ModernBertConfig"),
    *("MaskedLM", "TokenTagger", "SequenceClassifier"),
}
"""Classes of which no code may ask whether something is one: the row of a table knows what differs."""


def test_no_file_is_too_long():
    lengths = {str(path): len(text.splitlines()) for path, text in sources().items()}
    assert not {path for path, length in lengths.items() if length > MAX_LINES}


def test_no_folder_is_too_full():
    modules = [path.parent for path in sources() if path.name != "__init__.py"]
    assert not {str(folder) for folder in modules if modules.count(folder) > MAX_MODULES}


def test_no_function_is_too_long_or_takes_too_much():
    found = {
        name
        for name, function in functions()
        if function.end_lineno - function.lineno + 1 > MAX_FUNCTION_LINES or parameters(function) > MAX_PARAMETERS
    }
    assert found == EXCEPTIONS


def test_nobody_asks_of_which_family_or_head_a_model_is():
    found = set()
    for path, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
                asked = set(re.findall(r"\w+", ast.unparse(node.args[1])))
                found |= {str(path)} if asked & FAMILIES_AND_HEADS else set()
    assert not found


def test_every_module_is_mentioned_by_a_test():
    """By its own name, or by that of something public in it; one that is a row of a table by the row's name."""
    words = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        words |= {*re.findall(r"\w+", text), *re.findall(r"[\w.]+", text)} if path != Path(__file__) else set()
        imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
        words |= {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    found = set()
    for path, text in sources().items():
        module = ".".join(path.with_suffix("").parts).removesuffix(".__main__")
        public = {node.name for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        public |= {path.stem} if len(path.parts) > 3 else set()
        if path.name != "__init__.py" and not {module, *public} & words:
            found.add(str(path))
    assert not found


@cache
def sources() -> dict[Path, str]:
    paths = sorted(path for package in ("bertkit", "data_pipelines") for path in (ROOT / package).rglob("*.py"))
    return {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in paths}


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with the file, and the class or function that it stands in."""

    def walk(node: ast.AST, outer: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield f"{outer}{child.name}", child
            inner = f"{outer}{child.name}." if isinstance(child, (ast.ClassDef, ast.FunctionDef)) else outer
            yield from walk(child, inner)

    for path, text in sources().items():
        yield from walk(ast.parse(text), f"{path}: ")


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) + bool(given.vararg) + bool(given.kwarg) - (names[:1] in (["self"], ["cls"]))
