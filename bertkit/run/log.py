"""The progress of a run, for people and programs: a live line, metrics.jsonl, trackers, and advice."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertkit.events import event
from bertkit.run.advice import Adviser
from bertkit.run.folder import METRICS, read_metrics
from bertkit.run.schedule import StepRules
from bertkit.run.state import LoopState
from bertkit.run.step import StepResult
from data_pipelines import durable

_EVENTS = {"train": "step", "advice": "advice", "budget": "budget"}
"""What a supervisor reads of the kinds of metrics.jsonl; the others are scores."""


class RunLog:
    """Reports the progress of a run every `log_every` steps; silent on all ranks but the first (`folder` is None)."""

    def __init__(
        self,
        folder: Path | None,
        state: LoopState,
        *,
        rules: StepRules,
        log_every: int,
        share_of_peak: Callable[[int, int, float], float | None],
        adviser: Adviser,
        track: Callable[[dict[str, Any], int], None],
    ):
        """`share_of_peak` is a function of tokens, targets and seconds, None where it is unknown; `track` passes values
        of a step on to trackers."""
        self._folder, self._state, self._rules, self._log_every = folder, state, rules, log_every
        self._share_of_peak, self._adviser, self._track = share_of_peak, adviser, track
        self._first_step, self._seconds_before = state.step, state.seconds
        self._line = _Line(state.step) if folder is not None else None
        self._empty_window()

    def step(self, result: StepResult, lr: float, seconds: float, waited: float) -> None:
        """Note a step that the state has counted: what it took, and how much of that it waited for its batches."""
        self._window_seconds += seconds
        self._waited += waited
        self._window_tokens += result.num_tokens
        self._window_targets += result.num_targets
        if result.applied:
            self._loss_sum += result.loss * result.num_targets
            self._loss_targets += result.num_targets
        else:
            self._skipped += 1
            if self._folder is not None:
                event("skipped", step=self._state.step, in_a_row=self._state.bad_steps)
        done = self._state.step
        if done % self._log_every == 0 or done in (self._rules.total_steps, self._first_step + 1):
            self._tell(done, result, lr)
            self._empty_window()

    def record(self, kind: str, step: int, values: dict[str, Any], text: str = "") -> None:
        """One line of metrics.jsonl, the trackers, an event, and a line for the reader where there is a text."""
        if self._folder is None:
            return
        line = durable.json_line({"kind": kind, "step": step, **values})
        durable.append_file(self._folder / METRICS, line.encode(), anew=False)
        numbers = {f"{kind}/{name}": value for name, value in values.items() if isinstance(value, (int, float))}
        if numbers:
            self._track(numbers, step)
        name = _EVENTS.get(kind, "eval")
        event(name, step=step, **({"kind": kind} if name == "eval" else {}), **values)
        if text:
            self.say(text)

    def begin(self, text: str) -> None:
        """Say what begins or resumes, before the first step."""
        name, total_steps = "resume" if self._first_step else "start", self._rules.total_steps
        self.say(text, name, run_dir=str(self._folder), step=self._first_step, total_steps=total_steps)

    def stop(self, where: str, exit_code: int) -> None:
        """Say that a signal stopped the run after a step that is saved."""
        step = self._state.step
        text = f"stopped after step {step}{where}; the same command resumes from here"
        self.say(text, "stopped", step=step, exit_code=exit_code)

    def say(self, text: str, name: str = "", /, **facts: Any) -> None:
        """A line for the reader, and where it has a name an event."""
        if self._line is not None:
            self._line.say(text)
            if name:
                event(name, **facts)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *error: object) -> None:
        if self._line is not None:
            self._line.close()

    def _tell(self, done: int, result: StepResult, lr: float) -> None:
        seconds = max(self._window_seconds, 1e-9)
        seconds_per_step = (self._state.seconds - self._seconds_before) / (done - self._first_step)
        share = self._share_of_peak(self._window_tokens, self._window_targets, seconds)
        values = {
            "loss": self._loss_sum / self._loss_targets if self._loss_targets else math.nan,
            "lr": lr,
            "grad_norm": result.grad_norm,
            "tokens": self._state.tokens,
            "seconds": round(self._state.seconds, 3),
            "tokens_per_second": round(self._window_tokens / seconds, 1),
            "targets_share": round(self._window_targets / max(self._window_tokens, 1), 4),
            **({} if share is None else {"share_of_peak": round(share, 4)}),
            "input_stall": round(min(self._waited / seconds, 1.0), 4),
            "skipped": self._skipped,
        }
        left = (self._rules.total_steps - done) * seconds_per_step
        self.record("train", done, values)
        if self._line is not None:
            total_steps = self._rules.total_steps
            self._line.show(done, total_steps, _sentence(done, total_steps, values, left))
        for advice in self._adviser.consider(done, values):
            self.record("advice", done, {"text": advice}, f"advice: {advice}")

    def _empty_window(self) -> None:
        self._waited = self._window_seconds = self._loss_sum = 0.0
        self._window_tokens = self._window_targets = self._loss_targets = self._skipped = 0


def cut_metrics(folder: Path, last_step: int) -> None:
    """Drop the lines of steps that a resume repeats, and a line that a kill cut short."""
    if (folder / METRICS).exists():
        kept = [line for line, record in read_metrics(folder) if record["step"] <= last_step]
        durable.replace_file(folder / METRICS, b"".join(kept))


class _Line:
    """A live line on a terminal; plain lines in a log."""

    def __init__(self, first_step: int):
        self._progress = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (BarColumn(bar_width=20), TextColumn("{task.description}", markup=False))
            self._progress = Progress(*columns, console=Console(stderr=True), transient=False)
            self._task = self._progress.add_task("", total=None, completed=first_step)
            self._progress.start()

    def show(self, done: int, total_steps: int, text: str) -> None:
        if self._progress is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._progress.update(self._task, completed=done, total=total_steps, description=text)

    def say(self, text: str) -> None:
        if self._progress is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _sentence(done: int, total_steps: int, values: dict[str, Any], left: float) -> str:
    minutes, seconds = divmod(round(left), 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    learned = "" if math.isnan(values["loss"]) else f"loss {values['loss']:.3f}  "
    skipped = f"skipped {values['skipped']}, not finite  " if values["skipped"] else ""
    peak = f"{values['share_of_peak']:.0%} of peak  " if "share_of_peak" in values else ""
    return (
        f"step {done}/{total_steps}  {learned}{skipped}{values['tokens_per_second']:,.0f} tokens/s  "
        f"{peak}input {values['input_stall']:.0%}  left {clock}"
    )
