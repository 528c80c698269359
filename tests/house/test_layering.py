"""The rooms of the house import only what they may; no room has a name that says nothing."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
THIRD_PARTY = {"torch", "numpy", "tokenizers", "datasets", "accelerate", "safetensors", "yaml", "rich"}

# room: what it may import beside the standard library and itself
ROOMS = {
    "data_pipelines": {"torch", "numpy", "tokenizers", "datasets", "huggingface_hub", "pyarrow", "jieba"},
    "bertkit/config": {"yaml", "bertkit.model.config", "data_pipelines"},
    "bertkit/model": {"torch", "data_pipelines.table", "data_pipelines.bounds"},
    "bertkit/hf": {"torch", "safetensors", "huggingface_hub", "bertkit.model", "bertkit.config", "data_pipelines"},
    "bertkit/run": THIRD_PARTY | {"bertkit", "data_pipelines"},
    "bertkit/pretrain": THIRD_PARTY | {"bertkit", "data_pipelines"},
    "bertkit/evaluate": THIRD_PARTY | {"bertkit", "data_pipelines"},
    "bertkit/finetune": THIRD_PARTY | {"bertkit", "data_pipelines"},
    "bertkit/report": {"torch", "numpy", "yaml", "rich", "bertkit", "data_pipelines"},
}
FORBIDDEN_INSIDE = {
    "bertkit/run": {"bertkit.cli", "bertkit.finetune", "bertkit.pretrain", "bertkit.report", "bertkit.bench"},
    "bertkit/pretrain": {"bertkit.cli", "bertkit.finetune", "bertkit.report", "bertkit.bench"},
    "bertkit/evaluate": {"bertkit.cli", "bertkit.finetune", "bertkit.report", "bertkit.bench"},
    "bertkit/report": {"bertkit.cli", "bertkit.finetune", "bertkit.bench"},
    "bertkit/finetune": {"bertkit.cli", "bertkit.report", "bertkit.bench"},
}
NAMELESS = {"utils", "helpers", "common", "misc", "manager"}


def sources(room: str) -> list[Path]:
    path = ROOT / room
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room):
    own = room.removesuffix(".py").replace("/", ".")
    for path in sources(room):
        for module in imports(path):
            if module.partition(".")[0] in sys.stdlib_module_names or inside(module, own):
                continue
            assert any(inside(module, allowed) for allowed in ROOMS[room]), f"{path} imports {module}"
            assert not any(inside(module, bad) for bad in FORBIDDEN_INSIDE.get(room, ())), f"{path} imports {module}"


def test_the_product_never_imports_transformers_outside_the_bench():
    for package in ("bertkit", "data_pipelines"):
        for path in sources(package):
            if "bench" not in path.parts and path.stem != "bench":
                assert not any(inside(module, "transformers") for module in imports(path)), path


def test_every_room_has_a_telling_name():
    for package in ("bertkit", "data_pipelines", "tests"):
        for path in (ROOT / package).rglob("*"):
            assert path.stem not in NAMELESS, path


def test_every_package_of_the_checkout_is_in_the_wheel():
    tomllib = pytest.importorskip("tomllib")
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    present = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in ("bertkit", "data_pipelines")
        for path in (ROOT / package).rglob("*.py")
    }
    assert listed - {"bertkit.recipes"} == present
