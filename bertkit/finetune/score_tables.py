"""Scores as people read them: a line while training runs, tables beside the baselines, and what went wrong."""

from collections.abc import Mapping
from typing import Any

from bertkit.finetune.tasks.task import Column, Scores, Task
from bertkit.terminal import printable


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
    """Everything a run found out, on standard output."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    best = next(found for found in results["seeds"] if found["seed"] == results["best_seed"])
    parts = [part for part in ("dev", "test") if part in results]
    for part in parts:
        _print_scores(console, task, results, part)
    if parts:
        scores = best[parts[0]]
        _print_kinds(console, scores, f"{parts[0]} by kind, seed {best['seed']}")
        _print_confusions(console, scores.get("confusions", []), task.unit)
        _print_worst(console, scores.get("worst", []), task.unit)
    console.print(f"the model is in {results['export']}", markup=False)


def _value(scores: Mapping[str, Any], key: str) -> Any:
    group, _, name = key.rpartition(".")
    return scores.get(group, {}).get(name) if group else scores.get(name)


def _print_scores(console: Any, task: Task, results: dict[str, Any], part: str) -> None:
    seeds, summary = results["seeds"], results[part]
    columns = shown_columns(task, seeds[0][part])
    table = _table(part, "", *(column.title for column in columns))
    rows = {f"baseline: {name}": scores for name, scores in summary["baselines"].items()}
    rows |= {f"seed {found['seed']} (step {found['step']})": found[part] for found in seeds}
    for name, scores in rows.items():
        table.add_row(name, *(shown_score(scores, column) for column in columns))
    console.print(table)
    if len(seeds) > 1:
        deciding = next(column for column in columns if column.key == results["score"])
        mean, deviation = (deciding.form.format(summary[key]) for key in ("mean", "deviation"))
        about = f"(mean and deviation of {len(seeds)} seeds)"
        console.print(f"{part} {deciding.title}: {mean} ± {deviation} {about}")


def _print_kinds(console: Any, scores: Scores, title: str) -> None:
    """The scores of each kind of span, or of each label."""
    kinds = next((scores[key] for key in ("types", "tags") if scores.get(key)), None)
    if kinds is None:
        return
    table = _table(title, "", "count", "precision", "recall", "F1")
    for name, row in kinds.items():
        shares = (f"{row[key]:.2%}" for key in ("precision", "recall", "f1"))
        table.add_row(_plain(name or "(no kind)"), f"{row['gold']:,}", *shares)
    console.print(table)


def _print_confusions(console: Any, confusions: list[list[Any]], unit: str) -> None:
    if not confusions:
        return
    table = _table("most frequent mistakes", "gold", "predicted", f"{unit}s")
    for gold, predicted, count in confusions:
        table.add_row(_plain(gold), _plain(predicted), f"{count:,}")
    console.print(table)


def _print_worst(console: Any, sentences: list[dict[str, Any]], unit: str) -> None:
    """Each word or text of the worst sentences, with its right label and the predicted one."""
    for sentence in sentences:
        table = _table(f"{sentence['place']}", unit, "gold", "predicted")
        for word, gold, predicted in zip(sentence["words"], sentence["gold"], sentence["predicted"], strict=True):
            style = "" if gold == predicted else "bold red"
            table.add_row(_plain(word), _plain(gold), _plain(predicted), style=style)
        console.print(table)


def _table(title: str, first: str, *columns: str) -> Any:
    """Columns of numbers to the right, the others to the left."""
    from rich.table import Table

    table = Table(title=_plain(title), title_justify="left")
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="left" if name in ("gold", "predicted") else "right")
    return table


def _plain(text: str) -> Any:
    """Text from a file as it is: no markup, no control codes."""
    from rich.text import Text

    return Text(printable(text))
