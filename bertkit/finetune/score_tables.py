"""Scores as people read them: a line while training runs, tables beside the baselines, and what went wrong."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bertkit.finetune.answers import SPAN_POWER
from bertkit.finetune.tasks.task import Column, Scores, Task
from bertkit.terminal import has_rich, printable

_WIDE = 240


def score_line(task: Task, scores: Scores) -> str:
    """All scores of one evaluation."""
    return ", ".join(f"{column.title} {shown_score(scores, column)}" for column in shown_columns(task, scores))


def shown_columns(task: Task, scores: Scores) -> list[Column]:
    """The task's columns, as far as the scores have them."""
    return [column for column in task.columns if _value(scores, column.key) is not None]


def shown_score(scores: Scores, column: Column) -> str:
    value = _value(scores, column.key)
    return "" if value is None else column.form.format(value)


def print_results(task: Task, results: dict[str, Any]) -> None:
    """What a run found out, on standard output, the scores last."""
    best = best_seed(results)
    parts = [part for part in ("dev", "test") if part in results]
    if parts:
        scores = best[parts[0]]
        _print_kinds(scores, f"{parts[0]} by kind, seed {best['seed']}")
        _print_confusions(scores, task.unit)
        print(f"the worst {task.examples} are in {results['worst']}")
    print(f"the model is in {results['export']}")
    for part in parts:
        for line in calibration_lines(best, part):
            print(f"seed {best['seed']}: {line}")
    for part in parts:
        _print_scores(task, results, part)
    for warning in results.get("warnings", []):
        print(f"warning: {printable(warning)}")


def calibration_lines(found: Mapping[str, Any], part: str) -> list[str]:
    """How far the confidence of a seed is from the truth; nothing where it was not calibrated."""
    errors = found.get(part, {}).get("calibration")
    if errors is None or "temperature" not in found:
        return []
    power = f", span power {found[SPAN_POWER]:.2f}" if SPAN_POWER in found else ""
    return [
        f"expected calibration error on {part}: {errors['error']:.2%}, before calibration {errors['error_before']:.2%} "
        f"(temperature {found['temperature']:.2f}{power})"
    ]


def best_seed(results: Mapping[str, Any]) -> dict[str, Any]:
    return next(found for found in results["seeds"] if found["seed"] == results["best_seed"])


def worst_text(best: Mapping[str, Any]) -> str:
    """The worst sentences of a seed: a word a line with its right label and the predicted one, mistakes marked."""
    lines = []
    for part in ("dev", "test"):
        for worst in best.get(part, {}).get("worst", []):
            lines.append(f"# {part}: {worst['place']}")
            for row in zip(*(worst[key] for key in ("words", "gold", "predicted")), strict=True):
                lines.append("\t".join([*map(printable, row), *["<<<"] * (row[1] != row[2])]))
            lines.append("")
    return "".join(f"{line}\n" for line in lines)


def print_evaluation(task: Task, found: Scores) -> None:
    """What a finished model got right on labeled files, the scores last."""
    for note in found["notes"]:
        print(printable(note))
    _print_kinds(found, "by kind")
    _print_confusions(found, task.unit)
    _print_worst(found, task.unit)
    if "calibration" in found:
        print(f"expected calibration error: {found['calibration']['error']:.2%}")
    columns = shown_columns(task, found)
    scores = {f"baseline: {name}": its_scores for name, its_scores in found["baselines"].items()} | {"model": found}
    rows = [[name, *(shown_score(its_scores, column) for column in columns)] for name, its_scores in scores.items()]
    title = f"{found[task.examples]:,} {task.examples}"
    _print_table(title, ["", *(column.title for column in columns)], rows)


def _value(scores: Mapping[str, Any], key: str) -> Any:
    group, _, name = key.rpartition(".")
    return scores.get(group, {}).get(name) if group else scores.get(name)


def _print_scores(task: Task, results: dict[str, Any], part: str) -> None:
    seeds, summary = results["seeds"], results[part]
    columns = shown_columns(task, seeds[0][part])
    scores = {f"baseline: {name}": scores for name, scores in summary["baselines"].items()}
    scores |= {f"seed {found['seed']} (step {found['step']})": found[part] for found in seeds}
    rows = [[name, *(shown_score(its_scores, column) for column in columns)] for name, its_scores in scores.items()]
    if len(seeds) > 1:
        spread = {
            column.key: " ± ".join(column.form.format(summary[key]) for key in ("mean", "deviation"))
            for column in columns
            if column.key == results["score"]
        }
        rows.append([f"mean of {len(seeds)} seeds", *(spread.get(column.key, "") for column in columns)])
    _print_table(part, ["", *(column.title for column in columns)], rows)


def _print_kinds(scores: Scores, title: str) -> None:
    """The scores of each kind of span, or of each label, the most frequent first."""
    kinds = scores.get("types") or scores.get("tags") or {}
    rows = [
        [name or "(no kind)", f"{row['gold']:,}", *(f"{row[key]:.2%}" for key in ("precision", "recall", "f1"))]
        for name, row in sorted(kinds.items(), key=lambda kind: -kind[1]["gold"])
    ]
    _print_table(title, ["", "count", "precision", "recall", "F1"], rows)


def _print_confusions(scores: Scores, unit: str) -> None:
    """What was confused how often."""
    rows = [[gold, predicted, f"{count:,}"] for gold, predicted, count in scores.get("confusions", [])]
    _print_table("most frequent mistakes", ["gold", "predicted", f"{unit}s"], rows)


def _print_worst(scores: Scores, unit: str) -> None:
    """The worst sentences, each word or text with its right label and the predicted one."""
    for worst in scores.get("worst", []):
        columns = [worst[key] for key in ("words", "gold", "predicted")]
        wrong = [gold != predicted for gold, predicted in zip(*columns[1:], strict=True)]
        rows = [list(row) for row in zip(*columns, strict=True)]
        _print_table(worst["place"], [unit, "gold", "predicted"], rows, wrong)


def _print_table(title: str, columns: list[str], rows: list[list[str]], wrong: Sequence[bool] | None = None) -> None:
    """Numbers to the right, the rest to the left. Text from files is shown as it is: no markup, no control codes."""
    if not rows:
        return
    cells = [[printable(cell) for cell in row] for row in rows]
    left = [number == 0 or name in ("gold", "predicted") for number, name in enumerate(columns)]
    if not has_rich():
        _print_plainly(printable(title), [columns, *cells], left)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(printable(title)), title_justify="left")
    for name, is_left in zip(columns, left, strict=True):
        table.add_column(name, justify="left" if is_left else "right")
    for row, red in zip(cells, wrong or [False] * len(rows), strict=True):
        table.add_row(*map(Text, row), style="bold red" if red else "")
    # In a file or a pipe no table is folded.
    Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDE).print(table)


def _print_plainly(title: str, rows: list[list[str]], left: list[bool]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print(title)
    for row in rows:
        cells = zip(row, widths, left, strict=True)
        shown = (cell.ljust(width) if is_left else cell.rjust(width) for cell, width, is_left in cells)
        print("  ".join(shown).rstrip())
