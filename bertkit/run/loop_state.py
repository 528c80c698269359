"""Finished steps and scores enter; all that a loop remembers beside weights and moments leaves."""

from dataclasses import dataclass

from bertkit.run.log import Watch
from bertkit.run.step import StepResult


@dataclass
class Progress:
    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    bad_steps: int = 0
    """Steps in a row, up to now, that were not finite."""
    best_step: int | None = None
    best_score: float | None = None
    """The highest so far; of pretraining minus the held-out loss."""
    stale: int = 0
    """Evaluations since the best one."""

    def finish_step(self, result: StepResult, watch: Watch, max_bad_steps: int) -> None:
        """Count a step; too many in a row that were skipped end the run."""
        self.step, self.seconds, self.tokens = self.step + 1, watch.seconds, watch.tokens
        self.bad_steps = 0 if result.applied else self.bad_steps + 1
        if self.bad_steps >= max_bad_steps:
            raise ValueError(
                f"loss or gradients were not finite in {self.bad_steps} steps in a row, up to {self.step}; "
                "lower optim.lr, lengthen optim.warmup or lower train.clip_norm, and start in another run.dir"
            )

    def note_score(self, score: float) -> bool:
        """Whether the weights of this step are the best so far."""
        better = self.best_score is None or score > self.best_score
        if better:
            self.best_step, self.best_score = self.step, score
        self.stale = 0 if better else self.stale + 1
        return better
