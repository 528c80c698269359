"""Functions of Python code as sentences in which every name is tagged with its role: labels that cost nothing, because
the grammar gives them."""

import ast
import builtins
import keyword
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

ROLES = ("O", "argument", "attribute", "builtin", "class", "function", "global", "local", "module", "parameter")
"""What a name is: a keyword argument, an attribute, a builtin, a class, the function being defined, a name of the
module around it, a local variable, an imported module, a parameter. Anything else is O."""

_BUILTINS = frozenset(dir(builtins))
_WORD = re.compile(r'[^\W\d]\w*|\d[\w.]*|""|[^\w\s]')
_SHORTEST, _LONGEST = 20, 100


class TaggedCode(NamedTuple):
    words: list[str]
    tags: list[str]
    """One of ROLES for each."""


def code_words(code: str) -> list[str]:
    """Names, numbers, empty strings and punctuation."""
    return _WORD.findall(code)


def tagged_functions(code: str) -> Iterator[TaggedCode]:
    """The functions and methods of a module whose strings are empty and whose text is ASCII; long ones are cut."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about other people's code
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return  # a template, or a test of the parser
    modules = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    lines = code.splitlines()
    for function in _functions(tree):
        found = _tagged(lines, function, modules)
        if len(found.words) >= _SHORTEST:
            yield TaggedCode(found.words[:_LONGEST], found.tags[:_LONGEST])


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef):
                yield inner


def _tagged(lines: list[str], function: ast.FunctionDef, modules: set[str]) -> TaggedCode:
    role_at = _roles(function, modules)
    words: list[str] = []
    tags: list[str] = []
    for number in range(function.lineno, (function.end_lineno or 0) + 1):
        for match in _WORD.finditer(lines[number - 1]):
            word, before = match[0], words[-1] if words else ""
            words.append(word)
            if not word.isidentifier() or keyword.iskeyword(word):
                tags.append("O")
            else:
                tags.append(role_at.get((number, match.start())) or _by_neighbour(before))
    return TaggedCode(words, tags)


def _roles(function: ast.FunctionDef, modules: set[str]) -> dict[tuple[int, int], str]:
    """The role of the name at each line and column, where the syntax tree has a node for it."""
    nodes = list(ast.walk(function))
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assigned |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    found: dict[tuple[int, int], str] = {}
    for node in nodes:
        if isinstance(node, ast.arg):
            found[node.lineno, node.col_offset] = "parameter"
        elif isinstance(node, ast.keyword):
            found[node.lineno, node.col_offset] = "argument"
        elif isinstance(node, ast.Attribute):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            found[node.end_lineno, node.end_col_offset - len(node.attr)] = "attribute"
        elif isinstance(node, ast.Name):
            found[node.lineno, node.col_offset] = _role_of(node.id, parameters, assigned, modules)
    return found


def _role_of(name: str, parameters: set[str], assigned: set[str], modules: set[str]) -> str:
    known = {"parameter": parameters, "local": assigned, "module": modules, "builtin": _BUILTINS}
    for role, names in known.items():
        if name in names:
            return role
    return "class" if name[0].isupper() and not name.isupper() else "global"


def _by_neighbour(before: str) -> str:
    """Names that the syntax tree keeps as plain strings: in definitions, imports and except clauses."""
    return {"def": "function", "class": "class", "import": "module", "from": "module"}.get(before, "local")
