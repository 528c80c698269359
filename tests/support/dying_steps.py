"""A run in this process that ends before a step as a kill would end it, and what it leaves."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertkit.run import loop
from bertkit.run.checkpoint import checkpoints


class Died(BaseException):
    """No handler of the product catches it."""


@contextlib.contextmanager
def dies_before(step: int, seed: int | None = None) -> Iterator[None]:
    """What runs inside must reach this step, of this seed if one is given, and ends there."""
    real = loop.train_step

    def dying(*args, **options):
        if options["step"] == step and seed in (None, options["seed"]):
            raise Died
        return real(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", dying)
        with pytest.raises(Died):
            yield


def newest_hashes(folder: Path) -> tuple[int, dict[str, str]]:
    """Step of the newest checkpoint of a run, and the hashes of its weights and moments."""
    step, path = checkpoints(folder / "checkpoints")[-1]
    files = json.loads((path / "manifest.json").read_bytes())["files"]
    return step, {name: files[name]["sha256"] for name in ("model.safetensors", "optimizer.safetensors")}
