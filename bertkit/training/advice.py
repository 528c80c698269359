"""Measured numbers enter; what to change leaves, each hint at most once a run."""

from collections.abc import Callable, Iterator
from typing import Any

import torch


class Adviser:
    """Says what to change when input stalls, memory is nearly full, or the loss stays at the unigram level."""

    def __init__(self, *, total_steps: int, unigram: float, num_workers: int, free_memory: Callable[[], float]):
        self._total_steps, self._unigram, self._num_workers = total_steps, unigram, num_workers
        self._free_memory = free_memory
        self._given: set[str] = set()
        self._lowest = float("inf")

    def consider(self, step: int, values: dict[str, Any]) -> Iterator[str]:
        """Advice that these measurements call for and that was not given yet."""
        self._lowest = min(self._lowest, values["loss"])
        for kind, due, text in (
            ("input", step > 1 and values["input_stall"] > 0.2, self._input(values)),
            ("memory", self._free_memory() < 0.05, _MEMORY),
            ("flat", self._flat(step), self._flat_text()),
        ):
            if due and kind not in self._given:
                self._given.add(kind)
                yield text

    def _input(self, values: dict[str, Any]) -> str:
        more = max(2, 2 * self._num_workers)
        return f"{values['input_stall']:.0%} of the time goes into waiting for batches; try run.num_workers={more}"

    def _flat(self, step: int) -> bool:
        """A quarter of the run done, two hundred steps at least, and no better than guessing by frequency."""
        return step >= max(200, self._total_steps // 4) and self._lowest > self._unigram - 0.1

    def _flat_text(self) -> str:
        return (
            f"the loss is still near {self._unigram:.2f}, which knowing word frequencies alone would reach; "
            "try a lower optim.lr, a longer optim.warmup, or model.architecture=modernbert, which leaves it sooner"
        )


_MEMORY = "memory is nearly full; a smaller train.micro_batch or train.gradient_checkpointing=true needs less"


def free_memory(device: torch.device) -> float:
    """Share of the device's memory that is free; 1 where nobody knows."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return free / total
    try:
        with open("/proc/meminfo") as file:
            sizes = {line.split(":")[0]: int(line.split()[1]) for line in file}
        return sizes["MemAvailable"] / sizes["MemTotal"]
    except (OSError, KeyError, ValueError, IndexError):
        return 1.0
