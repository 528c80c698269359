"""A tagger's scores.json enters; its scores, its confusion of labels and its worst sentences leave as HTML.

{"scores": {...}, "confusion": {"labels": [...], "counts": [[...]]},
 "worst": [{"words": [...], "gold": [...], "predicted": [...]}]}
"""

from typing import Any

from bertkit.report.markup import Html, bar, join, printable, table, tag
from bertkit.report.runs import Run, number

_MOST_LABELS = 30
_MOST_SENTENCES = 20
_SHADES = 9


def tagger_parts(run: Run) -> Html | None:
    """What scores.json holds, part by part; None without one."""
    if run.scores is None:
        return None
    return join(
        _scores(run.scores.get("scores")), _confusion(run.scores.get("confusion")), _worst(run.scores.get("worst"))
    )


def _scores(scores: Any) -> Html | None:
    """Plain numbers in one table; scores by label, where there are any, in a table each."""
    if not isinstance(scores, dict) or not scores:
        return None
    single = [[_words(name), *_score(value)] for name, value in scores.items() if not isinstance(value, dict)]
    parts = [table("Scores", ["score", "value", ""], single)] if single else []
    for name, group in scores.items():
        if isinstance(group, dict) and group:
            parts.append(_grouped(_words(name), group))
    return join(*parts)


def _grouped(name: str, group: dict[str, Any]) -> Html:
    if not all(isinstance(values, dict) for values in group.values()):
        rows = [[_words(key), *_score(value)] for key, value in group.items()]
        return table(name, ["score", "value", ""], rows, class_="numbers captioned")
    columns = list(dict.fromkeys(key for values in group.values() for key in values))
    rows = [
        [printable(str(label)), *(_score(values.get(key))[0] for key in columns)] for label, values in group.items()
    ]
    return table(name, ["", *map(_words, columns)], rows, class_="numbers captioned")


def _score(value: Any) -> tuple[Any, Any]:
    """A score as text, and as a bar where it is a share."""
    if isinstance(value, float) and 0 <= value <= 1:
        return f"{value:.1%}", bar(value)
    if number({"value": value}, "value") is not None:
        return f"{value:,}" if isinstance(value, int) else f"{value:.3f}", None
    return "–" if value is None else printable(str(value)), None


def _confusion(confusion: Any) -> Html | None:
    """Rows are the gold labels, columns the predicted ones; a cell is coloured by its share of the row."""
    if not isinstance(confusion, dict):
        return None
    labels: Any = confusion.get("labels")
    counts: Any = confusion.get("counts")
    if not _is_square(labels, counts):
        return tag("p", "The confusion is left out: its counts do not fit its labels.", class_="absent")
    seen = [sum(counts[i]) + sum(row[i] for row in counts) for i in range(len(labels))]
    kept = sorted(sorted(range(len(labels)), key=lambda i: -seen[i])[:_MOST_LABELS])
    names = [printable(str(labels[i])) for i in kept]
    rows = []
    for i, name in zip(kept, names, strict=True):
        total = max(sum(counts[i]), 1)
        rows.append([name, *(_shaded(counts[i][j], counts[i][j] / total, i == j) for j in kept)])
    less = "" if len(kept) == len(labels) else f", the {_MOST_LABELS} most frequent of {len(labels)} labels"
    about = f"Rows: the gold label. Columns: what was predicted. Stronger colour: a larger share of the row{less}."
    return join(
        tag("h3", "Confusion"),
        tag("p", about, class_="about"),
        table("Confusion", ["", *names], rows, class_="confusion"),
    )


def _is_square(labels: Any, counts: Any) -> bool:
    return (
        isinstance(labels, list)
        and isinstance(counts, list)
        and len(labels) == len(counts) > 0
        and all(isinstance(row, list) and len(row) == len(labels) for row in counts)
        and all(isinstance(count, (int, float)) for row in counts for count in row)
    )


def _shaded(count: float, share: float, right: bool) -> Html:
    shade = min(int(share * _SHADES + 0.999), _SHADES)
    kind = "right" if right else "wrong"
    return tag("td", f"{count:,}" if count else tag("span", "0", class_="zero"), class_=f"{kind} shade-{shade}")


def _worst(worst: Any) -> Html | None:
    """Sentences word by word: the gold label under the word, and under it, struck out, the wrong prediction."""
    if not isinstance(worst, list) or not worst:
        return None
    sentences = [_sentence(entry) for entry in worst[:_MOST_SENTENCES]]
    about = "Under a word its gold label; struck out below, what was predicted instead."
    return join(
        tag("h3", "Worst sentences"),
        tag("p", about, class_="about"),
        tag("ol", [tag("li", sentence) for sentence in sentences if sentence is not None], class_="sentences"),
    )


def _sentence(entry: Any) -> Html | None:
    if not isinstance(entry, dict):
        return None
    columns: list[Any] = [entry.get(name) for name in ("words", "gold", "predicted")]
    if not all(isinstance(column, list) for column in columns):
        return None
    words, gold, predicted = columns
    return tag("p", [_word(*map(str, word)) for word in zip(words, gold, predicted)], class_="tagged")  # noqa: B905


def _word(word: str, gold: str, predicted: str) -> Html:
    wrong = gold != predicted
    below = []
    if wrong or gold != "O":
        below.append(tag("span", printable(gold), class_="gold"))
    if wrong:
        below.append(tag("s", printable(predicted), class_="predicted"))
    return join(tag("span", tag("span", printable(word)), below, class_="word wrong" if wrong else "word"), " ")


def _words(name: Any) -> str:
    return printable(str(name)).replace("_", " ")
