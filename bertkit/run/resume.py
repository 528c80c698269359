"""The state of a loop enters a checkpoint and comes back, on every rank or on none."""

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from bertkit.run.checkpoint import Checkpoint, load_newest, save_checkpoint
from bertkit.run.folder import CHECKPOINTS
from bertkit.run.log import cut_metrics
from bertkit.run.ranks import agree_on
from bertkit.run.state import gather_state, restore_state


def resume(
    folder: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], accelerator: Accelerator
) -> dict[str, Any]:
    """Load the newest whole checkpoint into model and optimizers; every rank reads the same one. What the loop
    itself remembered is returned: nothing where there is no checkpoint yet."""
    checkpoint = load_newest(folder / CHECKPOINTS)
    step = 0 if checkpoint is None else checkpoint.step
    if agree_on(accelerator, step) != step:
        raise ValueError(f"the processes see different checkpoints in {folder}; run.dir must lie on a disk all share")
    if accelerator.is_main_process:
        cut_metrics(folder, step)
    if checkpoint is None:
        return {}
    restore_state(model, optimizers, checkpoint.tensors)
    return checkpoint.state


def save(
    folder: Path,
    state: dict[str, Any],
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    accelerator: Accelerator,
    keep: int,
) -> None:
    """Write a checkpoint of `state["step"]` on the first rank; if that fails, every rank fails with the same words."""
    tensors = gather_state(model, optimizers)
    problem = ""
    if accelerator.is_main_process:
        checkpoint = Checkpoint(state["step"], tensors, state)
        try:
            save_checkpoint(folder / CHECKPOINTS, checkpoint, keep=keep, best_step=state["best_step"])
        except OSError as error:
            problem = str(error)
    problem = agree_on(accelerator, problem)
    if problem:
        raise OSError(problem)
