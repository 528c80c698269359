"""What computes the logits of rows: torch, or onnxruntime, which is all that a small installation has."""

# M answers, K labels

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.finetune.windows import Ask, Row, by_length
from bertkit.hf.folder import GRAPHS, choose_backend
from bertkit.hf.onnx import OnnxModel, open_graph

_MAX_TOKENS, _MAX_PADDING = 512, 0.1
"""Subwords that a graph computes at once, padding included, and the share of padding among them: what was fastest of
256 to 4096 and of 0 to 0.2. A call costs little, so small batches that stay in the caches of a CPU win."""


def open_model(folder: Path, kinds: Iterable[str], backend: str, device: str) -> tuple[Any, Ask]:
    """The model of a folder, with its `kind`, `labels` and `config`, and the function that computes with it."""
    backend = choose_backend(folder, backend, device)
    if backend not in GRAPHS:
        return open_torch(folder, kinds, device, half=backend == "bf16")
    if device != "cpu":
        raise ValueError(f"an ONNX graph is computed on the cpu, got device {device!r}")
    model = open_graph(folder, backend, *kinds, remedy="fine-tune it first")
    return model, asking_graph(model)


def asking_graph(model: OnnxModel) -> Ask:
    """The function that computes the logits of rows with this graph."""

    def ask(rows: Sequence[Row]) -> Iterator[tuple[list[int], np.ndarray]]:
        for chosen in by_length(rows, _MAX_TOKENS, _MAX_PADDING):
            here = [rows[index] for index in chosen]
            logits = model([row.ids_L for row in here], [row.type_L for row in here])
            if logits.ndim == 3:
                place_M = np.repeat(np.arange(len(here)), [len(row.index_M) for row in here])
                logits = logits[place_M, np.concatenate([row.index_M for row in here])]
            yield chosen, logits

    return ask


def open_torch(folder: Path, kinds: Iterable[str], device: str, half: bool = False) -> tuple[Any, Ask]:
    from bertkit.finetune.batches import asking
    from bertkit.hf.models import load_with_head
    from bertkit.model.products import in_half

    _check_device(device)
    model = load_with_head(folder, *kinds, remedy="fine-tune it first").to(device)
    return model, asking(in_half(model.target_logits, device) if half else model.target_logits, device)


def _check_device(device: str) -> None:
    """Refuse a device that this machine, or this build of torch, does not have, or from which nothing comes back."""
    import torch

    try:
        torch.empty(0, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        choices = "cpu" if found is None else f"cpu or {found.type}"
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {device!r} cannot be used here ({reason}); choose {choices}") from None
