"""The training loop of every run: a generator that yields after each optimizer step.

What happens between two steps is the caller's, in plain sight, and is not counted as training time:

    state = resume(folder, trainable, LoopState())
    rules = StepRules(total_steps=total_steps, seed=seed, optim=recipe.optim, train=recipe.train)
    for result in run_steps(trainable, batches_of_steps, state, rules, log, stop=run.asked_to_stop):
        if every and state.step % every == 0:
            ...  # evaluate
        if state.step == total_steps or result.stop:
            save(folder, state, trainable, keep)
        if result.stop:
            return run.exit_code

`state.step` is the number of steps done: after the first one it is 1. The steps come from `batches_of_steps`, so a
resumed run gives an iterator that begins at `state.step`, and one that has nothing left to do an empty one.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from bertkit.run.log import RunLog
from bertkit.run.optim import set_lr
from bertkit.run.ranks import Trainable
from bertkit.run.schedule import StepRules, lr_share
from bertkit.run.state import LoopState
from bertkit.run.step import Batch, StepResult, train_step


def run_steps(
    trainable: Trainable,
    batches_of_steps: Iterable[tuple[int, Sequence[Batch]]],
    state: LoopState,
    rules: StepRules,
    log: RunLog | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[StepResult]:
    """Take one step for each (step, micro-batches), count it in `state`, log it, and yield what it did.

    A step that is not finite is skipped; too many in a row raise a FloatingPointError. When any rank is asked to
    `stop`, the result of the step says so on all ranks, and the caller leaves its loop.
    """
    start = time.perf_counter()
    for step, batches in batches_of_steps:
        assert step == state.step, f"the batches are of step {step}, but {state.step} is next"
        waited = time.perf_counter() - start
        share = lr_share(step, rules.total_steps, rules.optim)
        set_lr(trainable.optimizers, share)
        result = train_step(
            trainable.model,
            trainable.optimizers,
            batches,
            trainable.accelerator,
            seed=rules.seed,
            step=step,
            clip_norm=rules.train.clip_norm,
            stop=stop,
        )
        seconds = time.perf_counter() - start
        state.step += 1
        state.seconds += seconds
        state.tokens += result.num_tokens
        state.bad_steps = 0 if result.applied else state.bad_steps + 1
        if log is not None:
            log.step(result, rules.optim.lr * share, seconds, waited)
        if state.bad_steps >= rules.train.max_bad_steps:
            raise FloatingPointError(
                f"loss or gradients were not finite in {state.bad_steps} steps in a row, up to {state.step}; "
                "lower optim.lr, lengthen optim.warmup or lower train.clip_norm, and start in another run.dir"
            )
        yield result
        start = time.perf_counter()
