"""A loop remembers how far it is, which step was best, and when to give up."""

from types import SimpleNamespace

import pytest

from bertkit.run.loop_state import Progress
from bertkit.run.step import StepResult

WATCH = SimpleNamespace(seconds=1.5, tokens=70)


def result(applied: bool) -> StepResult:
    return StepResult(1.0, 1.0, 1, 10, applied, False)


def test_a_step_counts_whether_it_was_applied_or_skipped():
    progress = Progress(step=4)
    for applied in (True, False, False, True):
        progress.finish_step(result(applied), WATCH, max_bad_steps=3)
    assert (progress.step, progress.seconds, progress.tokens, progress.bad_steps) == (8, 1.5, 70, 0)


def test_skipped_steps_in_a_row_end_the_run_with_a_remedy_and_others_do_not():
    progress = Progress()
    for applied in (False, True, False):
        progress.finish_step(result(applied), WATCH, max_bad_steps=2)
    with pytest.raises(ValueError, match=r"not finite in 2 steps in a row, up to 4; lower optim.lr"):
        progress.finish_step(result(False), WATCH, max_bad_steps=2)


def test_the_best_step_is_the_first_with_the_highest_score():
    progress = Progress()
    found = []
    for step, score in enumerate([-3.0, -2.0, -2.0, -2.5, -1.0], start=1):
        progress.step = step
        found.append((progress.note_score(score), progress.best_step, progress.stale))
    assert found == [(True, 1, 0), (True, 2, 0), (False, 2, 1), (False, 2, 2), (True, 5, 0)]
    assert progress.best_score == -1.0
