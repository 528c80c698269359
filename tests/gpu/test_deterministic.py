"""run.deterministic=true asks torch for deterministic algorithms, and trains with the same bits on a CPU."""

import os
from types import SimpleNamespace

import pytest
import torch

from bertkit.run.start import start_run


@pytest.mark.parametrize("asked", [False, True])
def test_the_key_asks_torch(asked, tmp_path, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr("bertkit.run.start.write_recipe", lambda folder, recipe: folder.mkdir(exist_ok=True))
    try:
        with start_run(tmp_path, SimpleNamespace(run=SimpleNamespace(deterministic=asked, keep=2))):
            assert torch.are_deterministic_algorithms_enabled() is asked
            assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) is asked
        assert not torch.are_deterministic_algorithms_enabled(), "only for as long as the run lasts"
    finally:
        torch.use_deterministic_algorithms(False)
