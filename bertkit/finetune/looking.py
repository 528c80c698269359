"""Scores enter, tables for a person leave: beside the baselines, with what was confused and the worst sentences."""

from typing import Any


def score_sentence(step: int, part: str, scores: dict[str, Any]) -> str:
    """One line about one evaluation."""
    if "strict" in scores:
        numbers = (
            f"F1 {scores['f1']:.2%} (precision {scores['precision']:.2%}, recall {scores['recall']:.2%}), "
            f"strict {scores['strict']['f1']:.2%}, words {scores['accuracy']:.2%}"
        )
    else:
        numbers = f"accuracy {scores['accuracy']:.2%}, macro-F1 {scores['macro_f1']:.2%}"
        if "unknown" in scores:
            unknown = scores["unknown"]
            numbers += f"; unknown words ({unknown['share']:.1%} of all) {unknown['accuracy']:.2%}"
    return f"step {step}  {part}: {numbers}"


def print_results(results: dict[str, Any]) -> None:
    """Everything a run found out, on standard output."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    best = next(found for found in results["seeds"] if found["seed"] == results["best_seed"])
    for part in ("dev", "test"):
        if part in results:
            _print_scores(console, results, part)
    looked_at = "dev" if "dev" in results else "test"
    if looked_at in best:
        _print_types(console, best[looked_at], looked_at, best["seed"])
        unit = "word" if results["task"] == "tagging" else "text"
        _print_confusions(console, best[looked_at]["confusions"], unit)
        _print_worst(console, best[looked_at]["worst"], unit)
    console.print(f"the model is in {results['export']}", markup=False)


def _print_scores(console: Any, results: dict[str, Any], part: str) -> None:
    spans = results["score"] == "f1"
    names = ["precision", "recall", "F1", "strict F1", "words"] if spans else ["accuracy", "macro-F1"]
    unknown = not spans and "unknown" in results["seeds"][0][part]
    table = _table(part, "", *names, *(["unknown words"] if unknown else []))

    def row(name: str, scores: dict[str, Any]) -> None:
        keys = ["precision", "recall", "f1"] if spans else ["accuracy", "macro_f1"]
        numbers = [scores[key] for key in keys]
        numbers += [scores["strict"]["f1"], scores["accuracy"]] if spans else []
        numbers += [scores["unknown"]["accuracy"]] if unknown else []
        table.add_row(name, *(f"{number:.2%}" for number in numbers))

    for name, scores in results[part]["baselines"].items():
        row(f"baseline: {name}", scores)
    for found in results["seeds"]:
        row(f"seed {found['seed']} (step {found['step']})", found[part])
    console.print(table)
    if len(results["seeds"]) > 1:
        name = "F1" if spans else "accuracy"
        console.print(
            f"{part} {name}: {results[part]['mean']:.2%} ± {results[part]['deviation']:.2%} "
            f"(mean and deviation of {len(results['seeds'])} seeds)"
        )


def _print_types(console: Any, scores: dict[str, Any], part: str, seed: int) -> None:
    rows = scores.get("types") or scores.get("tags") or {}
    table = _table(f"{part} by kind, seed {seed}", "", "count", "precision", "recall", "F1")
    for name, row in rows.items():
        table.add_row(
            _plain(name or "(no kind)"),
            f"{row['gold']:,}",
            *(f"{row[key]:.2%}" for key in ("precision", "recall", "f1")),
        )
    console.print(table)


def _print_confusions(console: Any, confusions: list[list[Any]], unit: str) -> None:
    if not confusions:
        return
    table = _table("most frequent mistakes", "gold", "predicted", f"{unit}s")
    for gold, predicted, count in confusions:
        table.add_row(_plain(gold), _plain(predicted), f"{count:,}")
    console.print(table)


def _print_worst(console: Any, sentences: list[dict[str, Any]], unit: str) -> None:
    """What has a label, a word or a whole text, with what it should have been and what it was taken for."""
    for sentence in sentences:
        table = _table(f"{sentence['place']}", unit, "gold", "predicted")
        for word, gold, predicted in zip(sentence["words"], sentence["gold"], sentence["predicted"], strict=True):
            style = "" if gold == predicted else "bold red"
            table.add_row(_plain(word), _plain(gold), _plain(predicted), style=style)
        console.print(table)


def _table(title: str, *columns: str) -> Any:
    """Columns of numbers to the right, the others to the left."""
    from rich.table import Table

    table = Table(title=_plain(title), title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "word", "text", "gold", "predicted") else "right")
    return table


def _plain(text: str) -> Any:
    """Text from a file as it is: no markup, and control codes shown instead of obeyed."""
    from rich.text import Text

    return Text("".join(char if char.isprintable() else repr(char)[1:-1] for char in text))
