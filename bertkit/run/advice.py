"""Advice on the recipe, from what was measured; each hint at most once per run."""

from collections.abc import Callable, Iterator
from typing import Any

ENOUGH_STEPS = 20
"""Waiting for batches is judged over this many steps: over fewer, one slow read looks like a stall."""


class Adviser:
    """Says what to change when input stalls, memory is nearly full, or the loss stays at the unigram level."""

    def __init__(
        self,
        *,
        total_steps: int,
        first_step: int = 0,
        unigram: float | None,
        num_workers: int | None,
        free_memory: Callable[[], float],
        memory_remedy: str = "a smaller train.micro_batch or train.gradient_checkpointing=true needs less",
    ):
        """`first_step` is where this process begins. `unigram` is the loss of predicting tokens by their frequency.
        It and `num_workers` are None where they do not apply."""
        self._total_steps, self._unigram, self._num_workers = total_steps, unigram, num_workers
        self._free_memory, self._memory_remedy = free_memory, memory_remedy
        self._given: set[str] = set()
        self._lowest = float("inf")
        # The first step waits for workers to start.
        self._told_until, self._stalled, self._stalled_steps = first_step + 1, 0.0, 0

    def consider(self, step: int, values: dict[str, Any]) -> Iterator[str]:
        """Advice for these measurements that was not given yet."""
        self._lowest = min(self._lowest, values["loss"])
        for kind, text in (
            ("input", self._input(step, values["input_stall"])),
            ("memory", self._memory()),
            ("flat", self._flat(step)),
        ):
            if text and kind not in self._given:
                self._given.add(kind)
                yield text

    def _input(self, step: int, stall: float) -> str:
        """`stall` is the mean since the last call; the mean over enough steps decides, then counting starts again."""
        num_steps, self._told_until = step - self._told_until, step
        self._stalled += stall * num_steps
        self._stalled_steps += num_steps
        if self._stalled_steps < ENOUGH_STEPS:
            return ""
        stall = self._stalled / self._stalled_steps
        self._stalled, self._stalled_steps = 0.0, 0
        if self._num_workers is None or stall <= 0.2:
            return ""
        more = max(2, 2 * self._num_workers)
        return f"{stall:.0%} of the time is spent waiting for batches; try run.num_workers={more}"

    def _memory(self) -> str:
        return "" if self._free_memory() >= 0.05 else f"memory is nearly full; {self._memory_remedy}"

    def _flat(self, step: int) -> str:
        """After a quarter of the run, and at least two hundred steps, no better than guessing by frequency."""
        if self._unigram is None or step < max(200, self._total_steps // 4) or self._lowest <= self._unigram - 0.1:
            return ""
        return (
            f"the loss is still near {self._unigram:.2f}, which token frequencies alone would reach; "
            "try a lower optim.lr, a longer optim.warmup, or model.architecture=modernbert, which learns faster here"
        )
