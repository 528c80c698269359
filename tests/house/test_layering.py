"""Every room imports what the plan of the house lets it import, and nothing else; no arrow leads back.

An import inside a function counts, and so does a string that names a module for later, such as "module:NAME" in a
table. To let a room import more, write it down here: that is the moment to ask whether the arrow belongs there.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("bertkit", "data_pipelines")

LEAVES = {
    "data_pipelines/table.py",
    "data_pipelines/bounds.py",
    "data_pipelines/cores.py",
    "data_pipelines/durable.py",
    "data_pipelines/places.py",
    "bertkit/terminal.py",
    "bertkit/events.py",
    "bertkit/plugins.py",
    "bertkit/cpu.py",
    "bertkit/graph.py",
    "bertkit/tensor_file.py",
}
"""Single modules that every room may import; they import no room."""

ROOMS = {
    "data_pipelines/text": ["pyarrow", "datasets", "huggingface_hub", "fsspec", "numpy"],
    "data_pipelines/vocab": ["data_pipelines/text", "tokenizers", "numpy", "jieba"],
    "data_pipelines/rows": ["data_pipelines/text", "data_pipelines/vocab", "tokenizers", "numpy"],
    "data_pipelines/masks": [
        *("data_pipelines/rows", "data_pipelines/vocab", "numpy", "torch"),
        "typing_extensions",  # for type checkers alone, which bring it along
    ],
    "data_pipelines/labels": ["data_pipelines/text", "datasets", "numpy", "spacy"],
    "data_pipelines/clean": ["data_pipelines/text", "numpy", "py3langid"],
    "data_pipelines/demo": ["data_pipelines/text"],
    "bertkit/model": ["torch"],
    "bertkit/hf": [
        "bertkit/model",
        "data_pipelines/text/hub.py",  # one place knows how long a silent hub is waited for
        *("data_pipelines/text/stores.py", "data_pipelines/text/transfer.py"),  # models on stores
        *("torch", "safetensors", "huggingface_hub", "numpy", "onnxruntime"),
    ],
    "bertkit/config": [
        *(f"data_pipelines/{room}/config.py" for room in ("text", "vocab", "rows", "masks", "labels")),
        "data_pipelines/rows/manifest.py",  # what prepared rows were made with
        "data_pipelines/text/stores.py",  # what a URL is
        *("bertkit/model/config.py", "bertkit/model/families.py"),
        "yaml",
    ],
    "bertkit/run": [
        *("bertkit/config", "bertkit/model"),
        "data_pipelines/masks/keyed.py",  # the seed of dropout is a function of keys, as masks are
        "data_pipelines/text/digest.py",  # a checkpoint is verified as prepared rows are
        *("data_pipelines/text/stores.py", "data_pipelines/text/transfer.py"),  # and copied to stores as they are
        *("torch", "accelerate", "safetensors", "rich"),
    ],
    "bertkit/evaluate": [
        *("bertkit/model", "bertkit/hf"),
        *("data_pipelines/text", "data_pipelines/vocab", "data_pipelines/rows", "data_pipelines/masks"),
        *("numpy", "torch"),
    ],
    "bertkit/pretrain": [
        *("bertkit/config", "bertkit/model", "bertkit/hf", "bertkit/run"),
        "bertkit/evaluate",  # an objective scores held-out rows
        *("data_pipelines/text", "data_pipelines/vocab", "data_pipelines/rows", "data_pipelines/masks"),
        *("numpy", "torch"),
    ],
    "bertkit/finetune": [
        *("bertkit/config", "bertkit/model", "bertkit/hf", "bertkit/run"),
        "bertkit/pretrain/train.py",  # an encoder may be adapted to the text of the task first
        *("data_pipelines/text", "data_pipelines/vocab", "data_pipelines/masks", "data_pipelines/labels"),
        *("numpy", "torch", "accelerate", "rich"),
    ],
    "bertkit/ship": [
        *("bertkit/hf", "bertkit/evaluate", "bertkit/finetune", "data_pipelines/vocab", "numpy", "onnx"),
        *("data_pipelines/text/config.py", "data_pipelines/text/corpus.py"),  # how the text of the gate is read
        "data_pipelines/text/characters.py",  # how the page splits words
        *("bertkit/report/page.py", "bertkit/report/markup.py"),  # the frame of the page
    ],
    "bertkit/report": [
        *("bertkit/config", "bertkit/hf", "bertkit/evaluate", "bertkit/pretrain", "bertkit/finetune"),
        *("data_pipelines/clean", "data_pipelines/vocab", "data_pipelines/rows", "data_pipelines/masks"),
        *("numpy", "torch", "rich", "yaml"),
    ],
    "bertkit/bench": [
        *("bertkit/config", "bertkit/model", "bertkit/hf", "bertkit/run"),
        *("bertkit/pretrain", "bertkit/evaluate", "bertkit/finetune"),
        *("bertkit/ship/onnx_file.py", "bertkit/ship/int8.py"),  # every backend beside the others
        *("data_pipelines/text", "data_pipelines/clean", "data_pipelines/vocab", "data_pipelines/rows"),
        "data_pipelines/masks",
        *("numpy", "torch", "tokenizers", "rich", "transformers", "rensa"),
    ],
    "bertkit/plan": [
        *("bertkit/config", "bertkit/model", "bertkit/run", "data_pipelines/masks"),
        *("torch", "accelerate"),
    ],
    "bertkit/demo": [
        *("bertkit/config", "bertkit/run", "bertkit/pretrain", "bertkit/evaluate", "bertkit/finetune"),
        *("bertkit/report", "data_pipelines/demo", "rich"),
    ],
    "bertkit/engines": ["ray"],
    "bertkit/cli": [
        *("bertkit/config", "bertkit/hf", "bertkit/pretrain", "bertkit/evaluate", "bertkit/finetune"),
        *("bertkit/ship", "bertkit/report", "bertkit/plan", "bertkit/bench", "bertkit/demo", "bertkit/engines"),
        *("data_pipelines/text", "data_pipelines/clean", "data_pipelines/vocab", "data_pipelines/rows"),
        "bertkit/run/lock.py",  # two commands never write one folder
        "data_pipelines/masks",
        "data_pipelines/labels",
    ],
    "bertkit": ["bertkit/hf", "bertkit/evaluate", "bertkit/finetune", "bertkit/cli"],
    "data_pipelines": ["data_pipelines/vocab", "data_pipelines/rows", "data_pipelines/masks"],
    **{leaf: [] for leaf in sorted(LEAVES)},
    "data_pipelines/bounds.py": ["data_pipelines/table.py"],
    "bertkit/terminal.py": ["rich"],
    "bertkit/events.py": ["bertkit/terminal.py", "data_pipelines/durable.py"],
    "bertkit/cpu.py": ["torch"],
    "bertkit/graph.py": ["torch", "numpy"],
    "bertkit/tensor_file.py": ["torch"],
}
"""What each room may import beside itself, the leaves and the standard library: rooms, single modules of rooms, and
packages of others. "bertkit" and "data_pipelines" are the front doors, their `__init__` and `__main__`."""

NAMELESS = {"utils", "helpers", "common", "misc", "manager"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_it_may_and_may_no_more(room):
    imported = {other: where for (importer, other), where in arrows().items() if importer == room}
    forbidden = {other: where for other, where in imported.items() if other not in ROOMS[room]}
    assert not forbidden
    assert not set(ROOMS[room]) - set(imported) - LEAVES


def test_every_file_is_in_a_room():
    for path in sources():
        assert room_of(path) in ROOMS, path


def test_no_permission_leads_back_to_its_room():
    permitted = {room: {room_of(ROOT / other) for other in others if "/" in other} for room, others in ROOMS.items()}
    TopologicalSorter(permitted).prepare()  # raises CycleError


def test_no_module_is_imported_by_a_name_that_is_put_together():
    """Such a name would pass unseen; a table of whole names, or one of a package's own modules, does not."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
                name = ast.unparse(node.args[0])
                is_whole = isinstance(node.args[0], (ast.Name, ast.Attribute, ast.Subscript))
                assert is_whole or name.startswith("f'{__name__}."), f"{path}:{node.lineno}: {name}"
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                start = str(node.values[0].value)
                assert not re.match(rf"({'|'.join(PACKAGES)})\.[\w.]*$", start), f"{path}:{node.lineno}: {start}"


def test_the_product_never_imports_transformers_outside_the_bench():
    assert [room for room, other in arrows() if other == "transformers"] == ["bertkit/bench"]


def test_every_room_has_a_telling_name():
    for package in (*PACKAGES, "tests"):
        for path in (ROOT / package).rglob("*"):
            assert path.stem not in NAMELESS, path


def test_every_package_of_the_checkout_is_in_the_wheel():
    tomllib = pytest.importorskip("tomllib")
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    assert listed - {"bertkit.recipes"} == {".".join(path.parent.relative_to(ROOT).parts) for path in sources()}


@cache
def arrows() -> dict[tuple[str, str], list[str]]:
    """(room, what it imports) with the places where it does, arrows to the leaves left out. What is imported is a
    room, or the single module where the importing room may import no more of it, or a package of others."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sources():
        room = room_of(path)
        for module, line in imports(path):
            target = file_of(module)
            if module.partition(".")[0] in sys.stdlib_module_names or (target and room_of(target) in {room, *LEAVES}):
                continue
            if target is None:
                other = module.partition(".")[0]
            else:
                own = str(target.relative_to(ROOT))
                other = own if own in ROOMS[room] else room_of(target)
            found.setdefault((room, other), []).append(f"{path.relative_to(ROOT)}:{line}: {module}")
    return found


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def room_of(path: Path) -> str:
    """Its folder, at most two deep. A file right in a package is one by itself, but for the front doors."""
    package, *inner = path.relative_to(ROOT).parts
    return package if inner[0] in ("__init__.py", "__main__.py") else f"{package}/{inner[0]}"


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """The modules that a file imports or names for later, with the lines where it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                # The name may be a module itself. The version is what it says, not what the front door opens.
                inner = f"{node.module}.{alias.name}"
                if inner != "bertkit.__version__":
                    yield (inner if file_of(inner) else node.module or ""), node.lineno
        elif isinstance(node, ast.Constant) and (match := re.fullmatch(r"(\w+(?:\.\w+)+)(:\w+)?", str(node.value))):
            own_package = path.parent.relative_to(ROOT).as_posix().replace("/", ".")
            named = next((name for name in (match[1], f"{own_package}.{match[1]}") if file_of(name)), None)
            if named or match[2]:
                yield named or match[1], node.lineno


@cache
def file_of(module: str) -> Path | None:
    """The file of a module of ours."""
    place = ROOT.joinpath(*module.split("."))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    ours = module.partition(".")[0] in PACKAGES
    return next((path for path in candidates if ours and path.is_file()), None)
