"""Small runs of `bertkit finetune`, whole or killed, and what they leave."""

import json
from pathlib import Path

import pytest

from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.train import finetune
from bertkit.run import loop
from bertkit.run.checkpoint import checkpoints

SMALL = ["train.epochs=4", "train.global_batch=8", "train.micro_batch=4", "optim.lr=0.02", "run.save_every=3"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


class Died(BaseException):
    """Ends a run as a kill would: no handler of the product catches it."""


def arguments(home: Path, folder: Path, *changes: str) -> list[str]:
    data = [f"data.train={home / 'train.conll'}", f"data.dev={home / 'dev.conll'}"]
    return ["ner", *data, f"model.init={home / 'encoder'}", f"run.dir={folder}", *SMALL, *changes]


def run(home: Path, folder: Path, *changes: str) -> int:
    name, *rest = arguments(home, folder, *changes)
    return finetune(read_finetune_recipe(name, rest))


def run_until(step: int, home: Path, folder: Path, *changes: str, seed: int = 0) -> None:
    """A run that dies when it is about to compute this step of this seed."""

    def dying(*args, **options):
        if (options["seed"], options["step"]) == (seed, step):
            raise Died
        return real(*args, **options)

    real = loop.train_step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", dying)
        with pytest.raises(Died):
            run(home, folder, *changes)


def final_state(folder: Path, seed: int = 0) -> dict[str, str]:
    path = checkpoints(folder / f"seed-{seed}" / "checkpoints")[-1][1]
    files = json.loads((path / "manifest.json").read_bytes())["files"]
    return {name: files[name]["sha256"] for name in ("model.safetensors", "optimizer.safetensors")}


def scores(folder: Path) -> dict:
    return json.loads((folder / "scores.json").read_bytes())
