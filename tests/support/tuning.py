"""Small runs of `bertkit finetune`, whole or killed, and what they leave."""

import json
from pathlib import Path

from dying_steps import dies_before, newest_hashes

from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.train import finetune

SMALL = ["train.epochs=4", "train.global_batch=8", "train.micro_batch=4", "optim.lr=0.02", "run.save_every=3"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def arguments(home: Path, folder: Path, *changes: str) -> list[str]:
    data = [f"data.train={home / 'train.conll'}", f"data.dev={home / 'dev.conll'}"]
    return ["ner", *data, f"model.init={home / 'encoder'}", f"run.dir={folder}", *SMALL, *changes]


def run(home: Path, folder: Path, *changes: str) -> int:
    name, *rest = arguments(home, folder, *changes)
    return finetune(read_finetune_recipe(name, rest))


def run_until(step: int, home: Path, folder: Path, *changes: str, seed: int = 0) -> None:
    """A run that dies when it is about to compute this step of this seed."""
    with dies_before(step, seed):
        run(home, folder, *changes)


def final_state(folder: Path, seed: int = 0) -> dict[str, str]:
    return newest_hashes(folder / f"seed-{seed}")[1]


def scores(folder: Path) -> dict:
    return json.loads((folder / "scores.json").read_bytes())
