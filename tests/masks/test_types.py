"""What a type checker makes of the collator in a user's file, under the strictest rules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = """
from typing import Any

from typing_extensions import assert_type

from data_pipelines import MaskingCollator, PackedBatch


def padded(rows: list[list[int]]) -> dict[str, Any]:
    collate = MaskingCollator(mask_id=4, vocab_size=50, special_ids=range(5), pad_id=0, unit="span", seed=0)
    assert_type(collate, MaskingCollator[dict[str, Any]])
    return collate(rows, return_tensors="np")


def packed(rows: list[list[int]]) -> PackedBatch:
    collate = MaskingCollator(mask_id=4, vocab_size=50, layout="packed")
    assert_type(collate, MaskingCollator[PackedBatch])
    assert_type(collate(rows).max_seqlen, int)
    return collate(rows).to("cpu").pin_memory().map(lambda tensor: tensor.clone())


def passed_on(tokenizer: Any, collator: MaskingCollator) -> MaskingCollator[PackedBatch]:
    assert_type(collator([[1]]), dict[str, Any])
    return MaskingCollator(tokenizer, 0.3, layout="packed")
"""
WRONG = """
from data_pipelines import MaskingCollator

MaskingCollator(mask_id=4, vocab_size=50, layout="packed")([[7]])["labels"]
MaskingCollator(mask_id=4, vocab_size=50)([[7]]).target_ids
MaskingCollator(mask_id=4, vocab_size=50, layout="paked")
"""
# As a type checker treats what is installed: our own mistakes are not the user's.
CONFIG = """
[mypy]
strict = true
[mypy-data_pipelines.*]
follow_imports = silent
[mypy-numpy.*,tokenizers.*,torch.*]
follow_imports = skip
"""


def test_both_layouts_have_their_types_and_mixing_them_is_an_error(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(CONFIG)
    (tmp_path / "right.py").write_text(FILE)
    (tmp_path / "wrong.py").write_text(WRONG)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--cache-dir=cache", "right.py", "wrong.py"],
        cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert not [line for line in lines if not line.startswith("wrong.py")], done.stdout
    assert {int(line.split(":")[1]) for line in lines} == {4, 5, 6}, done.stdout
