"""Run folders enter, one page leaves: curves, speed, masks, buckets, filled masks, and a tagger's scores."""

from pathlib import Path
from typing import Any

from bertkit.report.curves import LEARNING, OPTIMIZATION, SPEED, by_task, chart_data, figures, written
from bertkit.report.markup import Html, bar, join, table, tag
from bertkit.report.page import document, section, write_page
from bertkit.report.probe import Piece, Probe, probe
from bertkit.report.runs import Run, number, read_runs
from bertkit.report.tagging import tagger_parts

_BUCKETS = {
    "all": "all targets",
    "masked": "replaced by [MASK]",
    "random": "replaced by a random token",
    "kept": "left as they were",
    "frequent": "frequent tokens, half of the text",
    "rare": "all rarer tokens",
    "first_piece": "first piece of a word",
    "later_piece": "later piece of a word",
}
_CLOSING, _OPENING = set(".,;:!?)]}%"), set("([{")


def write_report(folders: list[Path], out: Path | None = None) -> Path:
    """Write the page and return where it is: in the run's folder, or in the one that holds all runs, or as told."""
    runs = read_runs(folders)
    parents = {run.folder.parent for run in runs}
    beside = runs[0].folder if len(runs) == 1 else parents.pop() if len(parents) == 1 else Path()
    path = out or beside / "report.html"
    write_page(path, training_report(runs))
    return path


def training_report(runs: list[Run]) -> str:
    """The page of these runs. With several, a colour stands for the same run everywhere."""
    curves = (*LEARNING, *OPTIMIZATION, *SPEED)
    data = chart_data(curves, runs)
    names = " · ".join(run.name for run in runs)
    # Masks are what encoders learn from; a tagger has none.
    probes = {
        index: probe(runs[index].folder, runs[index].facts, num_samples=6 if len(runs) == 1 else 3)
        for index in by_task(runs).get("pretraining", [])
    }
    body = join(
        tag(
            "header",
            tag("p", "bertkit report", class_="kicker"),
            tag("h1", runs[0].name if len(runs) == 1 else f"{len(runs)} runs side by side"),
            _glance(runs),
        ),
        tag(
            "main",
            _notes(runs),
            _controls(runs, data),
            _learning(runs),
            _charts("Optimization", figures(OPTIMIZATION, runs), "optimization"),
            _charts("Speed", figures(SPEED, runs), "speed"),
            _taggers(runs),
            _buckets(runs),
            _samples(runs, probes),
            _masks(runs, probes),
            _advice(runs),
            _recipes(runs),
            id="content",
        ),
        tag("footer", tag("p", "Written by bertkit. The page holds all its data and loads nothing.")),
    )
    return document(f"{names} – bertkit report", body, data, ["charts.js"])


def _glance(runs: list[Run]) -> Html:
    """The numbers one looks for first: tiles for one run, a table for the several ones of a task."""
    columns = {
        "steps": _steps,
        "held-out loss": lambda run: written(run.last("eval", "loss"), "fixed"),
        "perplexity": lambda run: written(run.last("eval", "perplexity"), "number"),
        "accuracy": lambda run: written(run.last("eval", "accuracy"), "percent"),
        "F1": lambda run: written(run.last("eval", "f1"), "percent"),
        "training loss": lambda run: written(run.last("train", "loss"), "fixed"),
        "tokens": lambda run: _large(run.last("train", "tokens")),
        "training time": lambda run: _duration(run.last("train", "seconds")),
        "tokens/s, mean": lambda run: written(_speed(run), "count"),
    }
    if len(runs) == 1:
        told = {name: tell(runs[0]) for name, tell in columns.items()}
        return tag(
            "dl",
            [tag("div", tag("dt", name), tag("dd", text)) for name, text in told.items() if text != "–"],
            class_="tiles",
        )
    tables, tasks = [], by_task(runs)
    for task, indices in tasks.items():
        names = [name for name, tell in columns.items() if any(tell(runs[index]) != "–" for index in indices)]
        rows = [
            [
                _swatch(index, runs[index]),
                # On a narrow screen every number stands under its own name.
                *(tag("td", columns[name](runs[index]), data_name=name) for name in names),
            ]
            for index in indices
        ]
        shown = "numbers glance captioned" if len(tasks) > 1 else "numbers glance"
        tables.append(table(f"{task}, at a glance", ["run", *names], rows, class_=shown))
    return join(tables)


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
            "each task has charts of its own.",
        )
    return tag("ul", [tag("li", note) for note in notes], class_="notes") if notes else None


def _controls(runs: list[Run], data: dict[str, Any]) -> Html | None:
    """The legend, which also hides runs, and what lies along the curves; the script makes them work."""
    if not data["charts"]:
        return None
    legend = axes = None
    if len(runs) > 1:
        boxes = [
            tag("label", tag("input", type="checkbox", checked="", data_run=index), _swatch(index, run))
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


def _swatch(index: int, run: Run) -> Html:
    return tag("span", tag("i", class_=f"swatch {_colour(index)}", aria_hidden="true"), run.name, class_="run-name")


def _colour(index: int) -> str:
    """The class that colours a run; there are eight colours, then they come again with another shape."""
    return f"run-{index % 8}" + (" again" if index >= 8 else "")


def _learning(runs: list[Run]) -> Html | None:
    drawn = figures(LEARNING, runs)
    if drawn:
        return _charts("Learning", drawn, "learning")
    return section("Learning", _absent("no step has been recorded yet (metrics.jsonl is empty)"), id="learning")


def _charts(title: str, drawn: list[Html], id: str) -> Html | None:
    return section(title, drawn, id=id) if drawn else None


def _buckets(runs: list[Run]) -> Html | None:
    """Loss and accuracy of the last evaluation, for every kind of target."""
    if "pretraining" not in by_task(runs):
        return None
    lasts = [run.of_kind("eval")[-1] if run.of_kind("eval") else {} for run in runs]
    found = [{"all": last, **_mapping(last["buckets"])} if _mapping(last.get("buckets")) else {} for last in lasts]
    if not any(found):
        reason = "no evaluation with buckets has been recorded; eval.every and data.validation_share ask for one"
        return section("Held-out targets by kind", _absent(reason), id="buckets")
    names = [name for name in _BUCKETS if any(name in buckets for buckets in found)]
    shown = [index for index, buckets in enumerate(found) if buckets]
    head: list[Any] = ["kind of target"]
    for index in shown:
        head += ["targets", "loss", "accuracy", ""] if len(runs) == 1 else [_swatch(index, runs[index]), "", "loss"]
    rows = []
    for name in names:
        row: list[Any] = [_BUCKETS[name]]
        for index in shown:
            bucket = _mapping(found[index].get(name))
            share, loss = number(bucket, "accuracy"), written(number(bucket, "loss"), "fixed")
            level = None if share is None else bar(share, _colour(index))
            if len(runs) == 1:
                row += [written(number(bucket, "targets"), "count"), loss, written(share, "percent"), level]
            else:
                row += [written(share, "percent"), level, loss]
        rows.append(row)
    steps = ", ".join(f"{lasts[index]['step']:,}" for index in shown)
    about = f"The last evaluation, at step {steps}; masks and rows are the same every time."
    if len(runs) > 1:
        about += " Under a run's name its accuracy, then its loss."
    return section(
        "Held-out targets by kind", tag("p", about, class_="about"), table("Targets by kind", head, rows), id="buckets"
    )


def _samples(runs: list[Run], probes: dict[int, Probe]) -> Html | None:
    if not probes:
        return None
    about = (
        "Held-out text with the targets marked: what stood there, and whether the first guess was right. "
        "The probabilities of the guesses follow below."
    )
    parts: list[Any] = []
    for index, found in probes.items():
        if len(runs) > 1:
            parts.append(tag("h3", _swatch(index, runs[index])))
        parts.append(
            tag("ol", [tag("li", _sample(pieces)) for pieces in found.samples], class_="samples")
            if found.samples
            else _absent(found.no_samples or "no held-out row has a target")
        )
    explained = tag("p", about, class_="about") if any(found.samples for found in probes.values()) else None
    return section("Filled masks", explained, *parts, id="samples")


def _sample(pieces: list[Piece]) -> Html:
    """The text with its targets marked and numbered, then the guesses for each."""
    text: list[Any] = []
    guesses: list[Any] = []
    for before, piece in zip([None, *pieces], pieces, strict=False):
        if before is not None and _spaced(before, piece):
            text.append(" ")
        if piece.shown is None:
            text.append(piece.text)
            continue
        mark = "right" if piece.right else "wrong"
        text.append(tag("mark", piece.text, tag("sup", len(guesses) + 1), class_=mark))
        listed = [[_guess(token, share), " "] for token, share in piece.guesses]
        shown = None if piece.shown == "[MASK]" else tag("span", f"saw “{piece.shown}”", class_="saw")
        sign = tag("span", "✓" if piece.right else "✗", aria_hidden="true")
        verdict = tag("span", sign, tag("span", f"{mark}: ", class_="unseen"), class_=f"verdict {mark}")
        guesses.append(tag("li", verdict, listed, shown))
    return join(tag("p", text, class_="text"), tag("ol", guesses, class_="guesses"))


def _spaced(before: Piece, piece: Piece) -> bool:
    """Whether a space stands between two pieces; the tokenizer forgot where there was one, so it is a guess."""
    return not piece.continues and piece.text not in _CLOSING and before.text not in _OPENING


def _guess(token: str, share: float) -> Html:
    return tag("span", tag("b", token), " <1%" if share < 0.01 else f" {share:.0%}", class_="guess")


def _masks(runs: list[Run], probes: dict[int, Probe]) -> Html | None:
    if not probes:
        return None
    parts = [tag("div", _mask_part(runs, index, found)) for index, found in probes.items()]
    return section("Masks", tag("div", parts, class_="charts"), id="masks")


def _mask_part(runs: list[Run], index: int, found: Probe) -> list[Any]:
    """What one run's masking did: over the run, from its records, and in detail, measured now."""
    run = runs[index]
    parts: list[Any] = [tag("h3", _swatch(index, run))] if len(runs) > 1 else []
    seen = [value for record in run.of_kind("train") if (value := number(record, "targets_share")) is not None]
    if seen:
        mean = sum(seen) / len(seen)
        parts.append(tag("p", f"Over the run {mean:.1%} of all tokens, special ones included, were targets."))
    if not found.rates:
        return [*parts, _absent(found.no_rates)]
    rows = [
        [rate.name, f"{rate.count:,}", f"{rate.share:.2%}", f"{rate.expected:.2%}" if rate.expected else "0"]
        for rate in found.rates
    ]
    caption = f"The first {found.mask_rows:,} training rows, in the first epoch"
    return [*parts, table(caption, ["", "count", "share", "asked for"], rows, class_="numbers captioned")]


def _taggers(runs: list[Run]) -> Html | None:
    parts: list[Any] = []
    for index, run in enumerate(runs):
        found = tagger_parts(run)
        if found is not None:
            parts += [tag("h3", _swatch(index, run)) if len(runs) > 1 else None, found]
    title = "Classification" if {run.task for run in runs} <= {"classification", "pretraining"} else "Tagging"
    return section(title, *parts, id="tagging") if parts else None


def _advice(runs: list[Run]) -> Html | None:
    """What the run itself suggested while it went on."""
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
        head = ["setting", *(_swatch(index, run) for index, run in enumerate(runs))]
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


def _absent(reason: str) -> Html:
    return tag("p", f"Left out: {reason}.", class_="absent")


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
