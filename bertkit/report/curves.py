"""The curves of runs, as data for the script that draws them and as tables for those who read."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

from bertkit.report.markup import Html, table, tag
from bertkit.report.runs import Record, Run, number
from bertkit.report.tagging import baseline_scores, words_of

MOST_POINTS = 1500
"""A curve of more points is thinned: no screen shows them, and the page would grow with the run."""

_TABLE_ROWS = 30


class Line(NamedTuple):
    """One number of one kind of record, followed over the steps."""

    kind: str
    key: str
    label: str
    strong: bool = True
    """Drawn bold with dots; other lines stay thin behind it."""


class Curve(NamedTuple):
    id: str
    title: str
    about: str
    form: str
    from_zero: bool
    lines: tuple[Line, ...]


LEARNING = (
    Curve(
        "loss",
        "Loss",
        "Cross-entropy in nats. Thin: training, the mean since the point before. Bold: held out.",
        "fixed",
        False,
        (Line("train", "loss", "training", strong=False), Line("eval", "loss", "held out")),
    ),
    Curve(
        "accuracy",
        "Accuracy",
        "Share of the held-out targets that the first guess gets right.",
        "percent",
        True,
        (Line("eval", "accuracy", "held out"),),
    ),
    Curve(
        "pairs",
        "Minimal pairs",
        "Share of the minimal pairs whose good sentence is the likelier one; chance is 50%.",
        "percent",
        False,
        (Line("pairs", "accuracy", "judged right"),),
    ),
)
OPTIMIZATION = (
    Curve("lr", "Learning rate", "Of AdamW.", "number", True, (Line("train", "lr", "rate", strong=False),)),
    Curve(
        "grad-norm",
        "Gradient norm",
        "Before clipping.",
        "number",
        True,
        (Line("train", "grad_norm", "norm", strong=False),),
    ),
)
SPEED = (
    Curve(
        "throughput",
        "Throughput",
        "Tokens a second.",
        "count",
        True,
        (Line("train", "tokens_per_second", "tokens/s", strong=False),),
    ),
    Curve(
        "peak",
        "Share of peak",
        "Operations of the linear layers, as a share of what a large matrix product reached on this machine.",
        "percent",
        True,
        (Line("train", "share_of_peak", "share", strong=False),),
    ),
)
_AXES = {"step": "step", "tokens": "tokens", "minutes": "minutes of training"}


def written(value: float | None, form: str) -> str:
    """A number as the script writes it too."""
    if value is None:
        return "–"
    if form == "percent":  # of two equally near, scripts take the larger and Python the even one
        return f"{math.floor(1000 * value + 0.5) / 10:.1f}%"
    return {"fixed": "{:.3f}", "count": "{:,.0f}", "number": "{:.3g}"}[form].format(value)


def by_task(runs: list[Run]) -> dict[str, list[int]]:
    """Which of the runs learn the same, in the order in which the tasks come up."""
    return {task: [i for i, run in enumerate(runs) if run.task == task] for task in dict.fromkeys(r.task for r in runs)}


def figures(curves: tuple[Curve, ...], runs: list[Run]) -> list[Html]:
    """A figure for every curve that any run has numbers for; the figures of one task are grouped."""
    groups = []
    for task, indices in by_task(runs).items():
        alike = [runs[index] for index in indices]
        drawn = [
            figure(curve.id, curve.title, _about(curve, alike), _numbers(curve, alike))
            for curve in _of_task(curves, task, runs)
            if any(_has(run, line) for run in alike for line in curve.lines)
        ]
        groups.append(tag("div", drawn, class_="charts") if drawn else None)
    return [group for group in groups if group is not None]


def score_curves(task: str) -> list[Curve]:
    """The scores that are drawn: in pretraining the accuracy, in a fine-tuning task those that its row explains."""
    if task == "pretraining":
        return [LEARNING[1]]
    return [
        Curve(
            column.key,
            column.title[:1].upper() + column.title[1:],
            column.about,
            "percent" if "%" in column.form else "number",
            True,
            (Line("eval", column.key, "dev"),),
        )
        for column in words_of(task).columns
        if column.about
    ]


def _about(curve: Curve, runs: list[Run]) -> str:
    dashed = any(baseline_scores(run, line.key) for run in runs for line in curve.lines if line.kind == "eval")
    return curve.about + " Dashed: without a model." * dashed


def figure(id: str, title: str, about: str, numbers: Html) -> Html:
    """An empty place for the script to draw in, and the same numbers as a table."""
    return tag(
        "figure",
        tag("figcaption", tag("h3", title, id=f"{id}-title"), tag("p", about)),
        tag("div", class_="plot", data_chart=id),
        tag("details", tag("summary", "Numbers"), numbers),
        class_="chart",
        aria_labelledby=f"{id}-title",
    )


def chart_data(curves: tuple[Curve, ...], runs: list[Run]) -> dict[str, Any]:
    """What the script draws: columns of steps shared by the lines of one kind of record of one run."""
    columns: list[dict[str, Any]] = []
    charts: dict[str, Any] = {
        curve.id: {"title": curve.title, "form": curve.form, "fromZero": curve.from_zero, "series": [], "levels": []}
        for task in by_task(runs)
        for curve in _of_task(curves, task, runs)
    }
    for index, run in enumerate(runs):
        place = _places(run)
        drawn = _of_task(curves, run.task, runs)
        for curve in drawn:
            for line in curve.lines:
                levels = charts[curve.id]["levels"]
                known = {(level["label"], level["y"]) for level in levels}
                found = baseline_scores(run, line.key).items() if line.kind == "eval" else ()
                levels += [
                    {"run": index, "label": name, "y": value} for name, value in found if (name, value) not in known
                ]
        for kind in ("train", "eval", "pairs"):
            records = thinned(run.of_kind(kind))
            if not records:
                continue
            for curve in drawn:
                for line in curve.lines:
                    if line.kind == kind and _has(run, line):
                        values = [number(record, line.key) for record in records]
                        charts[curve.id]["series"].append(
                            {
                                "run": index,
                                "column": len(columns),
                                "label": line.label,
                                "strong": line.strong,
                                "y": [None if value is None else float(f"{value:.6g}") for value in values],
                            }
                        )
            columns.append({axis: [place(axis, record["step"]) for record in records] for axis in _AXES})
    axes = [
        {"key": axis, "label": label}
        for axis, label in _AXES.items()
        if all(value is not None for column in columns for value in column[axis])
    ]
    return {
        "axes": axes,
        "runs": [{"name": run.name} for run in runs],
        "columns": columns,
        "charts": {id: chart for id, chart in charts.items() if chart["series"]},
    }


def thinned(records: list[Record]) -> list[Record]:
    """At most `MOST_POINTS` records. Of each stretch the lowest and the highest loss stay, so no spike is lost, and so
    do the first record and the last."""
    if len(records) <= MOST_POINTS:
        return records
    inner = range(1, len(records) - 1)
    stretches = (MOST_POINTS - 2) // 2
    kept = {0, len(records) - 1}
    for stretch in range(stretches):
        here = inner[len(inner) * stretch // stretches : len(inner) * (stretch + 1) // stretches]
        by_loss = [index for index in here if number(records[index], "loss") is not None] or here
        kept |= {
            min(by_loss, key=lambda i: number(records[i], "loss") or 0),
            max(by_loss, key=lambda i: number(records[i], "loss") or 0),
        }
    return [records[index] for index in sorted(kept)]


def _of_task(curves: tuple[Curve, ...], task: str, runs: list[Run]) -> list[Curve]:
    """The curves as this task has them; where there are others, under its own names."""
    told = list(curves)
    if task != "pretraining" and LEARNING[0] in told:
        about = f"The mean over the labeled {words_of(task).unit}s since the point before."
        others = [curve for curve in told if curve not in LEARNING]
        told = [LEARNING[0]._replace(about=about), *score_curves(task), *others]
    if len(by_task(runs)) == 1:
        return told
    return [curve._replace(id=f"{curve.id}-{task}", title=f"{curve.title}, {task}") for curve in told]


def _has(run: Run, line: Line) -> bool:
    return any(number(record, line.key) is not None for record in run.of_kind(line.kind))


def _places(run: Run) -> Callable[[str, int], float | None]:
    """Where a step lies on each axis: evaluations have no clock of their own, so it is read off the training lines."""
    train = [record for record in run.of_kind("train") if number(record, "tokens") and number(record, "seconds")]
    steps = [record["step"] for record in train]

    def place(axis: str, step: int) -> float | None:
        if axis == "step":
            return step
        if not steps:
            return None
        key, unit = ("tokens", 1) if axis == "tokens" else ("seconds", 60)
        after = min(bisect_left(steps, step), len(steps) - 1)
        before_step, before = (steps[after - 1], train[after - 1][key]) if after else (0, 0)
        share = (step - before_step) / max(steps[after] - before_step, 1)
        return round((before + min(max(share, 0), 1) * (train[after][key] - before)) / unit, 3)

    return place


def _numbers(curve: Curve, runs: list[Run]) -> Html:
    """The newest value of every line at some steps; empty before a line begins and after it ends."""
    lines = [
        (run, line, [record for record in run.of_kind(line.kind) if number(record, line.key) is not None])
        for run in runs
        for line in curve.lines
        if _has(run, line)
    ]
    fewest = min(lines, key=lambda entry: len(entry[2]))[2]
    steps = {record["step"] for record in fewest} | {records[-1]["step"] for _, _, records in lines}
    shown = sorted(steps)
    if len(shown) > _TABLE_ROWS:
        shown = [shown[round(place * (len(shown) - 1) / (_TABLE_ROWS - 1))] for place in range(_TABLE_ROWS)]
    head = ["step", *(f"{run.name}, {line.label}" if len(runs) > 1 else line.label for run, line, _ in lines)]
    rows = [
        [f"{step:,}", *(written(_at(records, line.key, step), curve.form) for _, line, records in lines)]
        for step in shown
    ]
    return table(curve.title, head, rows)


def _at(records: list[Record], key: str, step: int) -> float | None:
    index = bisect_right([record["step"] for record in records], step)
    return number(records[index - 1], key) if index and step <= records[-1]["step"] else None
