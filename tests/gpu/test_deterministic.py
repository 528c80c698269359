"""run.deterministic=true asks torch for deterministic algorithms, for as long as the run lasts."""

import os

import pytest
import torch

from bertkit.config.recipe import read_recipe
from bertkit.run.start import start_run


@pytest.mark.parametrize("asked", [False, True])
def test_the_key_asks_torch(asked, tmp_path, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    recipe = read_recipe("bert-mini", ["data.corpus=none", f"run.dir={tmp_path}", f"run.deterministic={asked}"])
    try:
        with start_run(tmp_path, recipe):
            assert torch.are_deterministic_algorithms_enabled() is asked
            assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) is asked
        assert not torch.are_deterministic_algorithms_enabled(), "only for as long as the run lasts"
    finally:
        torch.use_deterministic_algorithms(False)
