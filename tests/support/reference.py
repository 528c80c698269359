"""transformers, the reference that tests compare with."""

import re
from pathlib import Path
from typing import Any

import pytest


def reference_transformers() -> Any:
    """The module. Where it is missing, or older than pyproject.toml asks for, the test is skipped."""
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (bound,) = re.findall(r'"transformers>=([\d.]+)"', project)
    return pytest.importorskip("transformers", minversion=bound)
