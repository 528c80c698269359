"""The page of one run or several: curves, speed, a tagger's scores, masks, advice, settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertkit.report.curves import (
    LEARNING,
    OPTIMIZATION,
    SPEED,
    Curve,
    by_task,
    chart_data,
    figures,
    score_curves,
    written,
)
from bertkit.report.markup import Html, absent, join, swatch, table, tag, tiles
from bertkit.report.page import report, section, write_page
from bertkit.report.pretraining import buckets, masks, samples
from bertkit.report.probe import probe
from bertkit.report.runs import Run, number, read_runs
from bertkit.report.tagging import score_section, tagger_parts


def write_report(folders: list[Path], out: Path | None = None) -> Path:
    """Write the page and return where it is: in the run's folder, or in the one that holds all runs, or as told."""
    runs = read_runs(folders)
    parents = {run.folder.parent for run in runs}
    beside = runs[0].folder if len(runs) == 1 else parents.pop() if len(parents) == 1 else Path()
    path = out or beside / "report.html"
    write_page(path, training_report(runs))
    return path


def training_report(runs: list[Run]) -> str:
    """The page of these runs. With several, a run has the same colour everywhere."""
    curves = (*LEARNING, *OPTIMIZATION, *SPEED)
    data = chart_data(curves, runs)
    names = " · ".join(run.name for run in runs)
    # Masks are what encoders learn from; a tagger has none.
    probes = {
        index: probe(runs[index].folder, num_samples=6 if len(runs) == 1 else 3)
        for index in by_task(runs).get("pretraining", [])
    }
    sections = [
        _notes(runs),
        _scores(runs),
        _controls(runs, data),
        _learning(runs),
        _taggers(runs),
        _charts("Optimization", figures(OPTIMIZATION, runs), "optimization"),
        _charts("Speed", figures(SPEED, runs), "speed"),
        buckets(runs),
        samples(runs, probes),
        masks(runs, probes),
        _advice(runs),
        _recipes(runs),
    ]
    heading, title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs side by side", f"{names} – bertkit report"
    return report("report", heading, [_glance(runs)], sections, title=title, data=data, scripts=["charts.js"])


def _glance(runs: list[Run]) -> Html:
    """The numbers one looks for first: tiles for one run, a table for the several ones of a task."""
    columns = {
        **{_score_title(run, curve): _last_score(curve) for run in runs for curve in score_curves(run.task)},
        "held-out loss": lambda run: written(run.last("eval", "loss"), "fixed"),
        "perplexity": lambda run: written(run.last("eval", "perplexity"), "number"),
        "steps": _steps,
        "minimal pairs": lambda run: written(run.last("pairs", "accuracy"), "percent"),
        "training loss": lambda run: written(run.last("train", "loss"), "fixed"),
        "tokens": lambda run: _large(run.last("train", "tokens")),
        "training time": lambda run: _duration(run.last("train", "seconds")),
        "tokens/s, mean": lambda run: written(_speed(run), "count"),
    }
    if len(runs) == 1:
        told = {name: tell(runs[0]) for name, tell in columns.items()}
        return tiles({name: text for name, text in told.items() if text != "–"})
    tables, tasks = [], by_task(runs)
    for task, indices in tasks.items():
        names = [name for name, tell in columns.items() if any(tell(runs[index]) != "–" for index in indices)]
        rows = [
            [
                swatch(index, runs[index].name),
                # On a narrow screen every number stands under its own name.
                *(tag("td", columns[name](runs[index]), data_name=name) for name in names),
            ]
            for index in indices
        ]
        shown = "numbers glance captioned" if len(tasks) > 1 else "numbers glance"
        tables.append(table(f"{task}, at a glance", ["run", *names], rows, class_=shown))
    return join(tables)


def _score_title(run: Run, curve: Curve) -> str:
    return curve.title if run.task == "pretraining" else f"dev {curve.title}"


def _last_score(curve: Curve) -> Callable[[Run], str]:
    return lambda run: written(run.last("eval", curve.lines[0].key), curve.form)


def _steps(run: Run) -> str:
    done, total = run.last("train", "step"), number(run.facts, "total_steps")
    if done is None or total is None or done >= total:
        return written(done, "count")
    return f"{done:,.0f} of {total:,.0f}"


def _speed(run: Run) -> float | None:
    tokens, seconds = run.last("train", "tokens"), run.last("train", "seconds")
    return tokens / seconds if tokens and seconds else None


def _large(value: float | None) -> str:
    if value is None:
        return "–"
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:,.0f}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _notes(runs: list[Run]) -> Html | None:
    notes = [f"{run.name}: {note}" if len(runs) > 1 else note for run in runs for note in run.notes]
    if len(by_task(runs)) > 1:
        notes.insert(
            0,
            "These runs learn different tasks, whose losses and accuracies do not compare; "
            "each task has its own charts.",
        )
    return tag("ul", [tag("li", note) for note in notes], class_="notes") if notes else None


def _controls(runs: list[Run], data: dict[str, Any]) -> Html | None:
    """The legend, which also hides runs, and what lies along the curves; the script makes them work."""
    if not data["charts"]:
        return None
    legend = axes = None
    if len(runs) > 1:
        boxes = [
            tag("label", tag("input", type="checkbox", checked="", data_run=index), swatch(index, run.name))
            for index, run in enumerate(runs)
        ]
        legend = tag("fieldset", tag("legend", "Runs"), boxes)
    if len(data["axes"]) > 1:
        choices = [
            tag(
                "label",
                tag(
                    "input", type="radio", name="axis", value=axis["key"], checked="" if axis["key"] == "step" else None
                ),
                {"step": "steps"}.get(axis["key"], axis["key"]),
            )
            for axis in data["axes"]
        ]
        axes = tag("fieldset", tag("legend", "Along"), choices, class_="segmented")
    return tag("form", legend, axes, class_="controls", aria_label="What the curves show") if legend or axes else None


def _scores(runs: list[Run]) -> Html | None:
    shown = score_section(runs, by_task(runs))
    return section("Scores", *shown, id="scores") if shown else None


def _learning(runs: list[Run]) -> Html | None:
    drawn = figures(LEARNING, runs)
    if drawn:
        return _charts("Learning", drawn, "learning")
    return section("Learning", absent("no step has been recorded yet (metrics.jsonl is empty)"), id="learning")


def _charts(title: str, drawn: list[Html], id: str) -> Html | None:
    return section(title, drawn, id=id) if drawn else None


def _taggers(runs: list[Run]) -> Html | None:
    parts: list[Any] = []
    for index, run in enumerate(runs):
        found = tagger_parts(run)
        if found is not None:
            parts += [tag("h3", swatch(index, run.name)) if len(runs) > 1 else None, found]
    tasks = {run.task for run in runs} - {"pretraining"}
    title = tasks.pop().capitalize() if len(tasks) == 1 else "Fine-tuning"
    return section(title, *parts, id="tagging") if parts else None


def _advice(runs: list[Run]) -> Html | None:
    """What the run itself suggested while it trained."""
    told = [
        tag("li", f"{run.name}, " if len(runs) > 1 else "", f"step {record['step']:,}: {record.get('text', '')}")
        for run in runs
        for record in run.of_kind("advice")
    ]
    return section("Advice", tag("ul", told), id="advice") if told else None


def _recipes(runs: list[Run]) -> Html | None:
    """What differs between the runs, and every setting of each."""
    if not any(run.recipe for run in runs):
        return None
    parts: list[Any] = []
    keys = list(dict.fromkeys(key for run in runs for key in run.recipe))
    if len(runs) > 1:
        common = [key for key in keys if key != "run.dir" and all(key in run.recipe for run in runs)]
        differing = [key for key in common if len({repr(run.recipe[key]) for run in runs}) > 1]
        rows = [[key, *(_setting(run.recipe.get(key)) for run in runs)] for key in differing]
        head = ["setting", *(swatch(index, run.name) for index, run in enumerate(runs))]
        parts.append(
            table("Settings that differ", head, rows, class_="settings captioned")
            if rows
            else tag("p", "The settings that these recipes share are the same.")
        )
    rows = [[key, *(_setting(run.recipe.get(key)) for run in runs)] for key in keys]
    everything = table("All settings", ["setting", *(run.name for run in runs)], rows, class_="settings")
    return section("Recipe", *parts, tag("details", tag("summary", "All settings"), everything), id="recipe")


def _setting(value: Any) -> str:
    if value is None:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
