"""What a job left, in a form that can be compared."""

import json
from pathlib import Path


def fingerprint(folder: Path) -> str:
    """Of prepared rows: different for any two sets of them."""
    return json.loads((folder / "manifest.json").read_text())["fingerprint"]


def contents(folder: Path) -> dict[str, bytes]:
    """Of cleaned text: every file of it and what was found."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json*"))}
