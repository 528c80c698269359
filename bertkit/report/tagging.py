"""The scores of a fine-tuned model, what it confuses and its worst sentences, as scores.json holds them.

One result holds numbers, "confusion" ({"labels": [...], "counts": [[...]]}) or "confusions" ([gold, predicted, count]),
and "worst" ([{"words": [...], "gold": [...], "predicted": [...]}]). It stands in the file by itself, or once for each
of dev and test, or that for each of several seeds. Every part may be missing.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bertkit.report.markup import Html, bar, join, table, tag
from bertkit.report.runs import Run, number
from bertkit.terminal import printable

_MOST_LABELS = 30
_MOST_SENTENCES = 20
_SHADES = 9


class Words(NamedTuple):
    """How a page speaks of a task; these words where nobody here knows it."""

    unit: str = "answer"
    """What has a label."""
    examples: str = "examples"
    """What the data are made of."""
    names: Mapping[str, str] = MappingProxyType({})
    """What numbers and groups of numbers in scores.json are called."""
    columns: Sequence[Any] = ()
    """The scores that tables and curves show."""


def words_of(task: str) -> Words:
    from bertkit.finetune.tasks import TASKS  # here, because a page of pretraining needs no task

    if task not in TASKS:
        return Words()
    row = TASKS[task]
    return Words(row.unit, row.examples, row.names, row.columns)


def tagger_parts(run: Run) -> Html | None:
    """What scores.json holds, part by part; None without one."""
    if run.scores is None:
        return None
    best, words = best_seed(run.scores), words_of(run.task)
    splits = {name: best[name] for name in ("test", "dev") if isinstance(best.get(name), dict)}
    if not splits:
        return _result(run.scores.get("scores"), run.scores, words)
    parts: list[Any] = [_seeds(run.scores)]
    for name, found in splits.items():
        numbers = {key: value for key, value in found.items() if not isinstance(value, list)}
        parts += [tag("h3", f"{name.capitalize()} {words.examples}"), _result(numbers, found, words)]
    return join(*parts)


def best_seed(scores: dict[str, Any]) -> dict[str, Any]:
    """The result of the seed that was chosen; the whole where there is only one."""
    seeds = scores.get("seeds")
    found = [seed for seed in seeds if isinstance(seed, dict)] if isinstance(seeds, list) else []
    chosen = [seed for seed in found if seed.get("seed") == scores.get("best_seed")]
    return (chosen or found or [scores])[0]


def _seeds(scores: dict[str, Any]) -> Html | None:
    """The score that decides, for every seed and every baseline."""
    name, seeds = scores.get("score"), scores.get("seeds")
    if not isinstance(name, str) or not isinstance(seeds, list):
        return None
    summaries = {split: scores[split] for split in ("dev", "test") if isinstance(scores.get(split), dict)}

    def across(values: Any, *keys: str) -> list[Any]:
        return [_score(_inside(values, split, *keys))[0] for split in summaries]

    rows = [[f"seed {seed.get('seed')}", *across(seed, name)] for seed in seeds if isinstance(seed, dict)]
    rows.append(["mean of the seeds", *across(summaries, "mean")])
    rows.append(["their deviation", *across(summaries, "deviation")])
    baselines = dict.fromkeys(key for found in summaries.values() for key in _inside(found, "baselines") or {})
    rows += [[f"without a model: {printable(key)}", *across(summaries, "baselines", key, name)] for key in baselines]
    return table(f"{_words(name)} of every seed", [_words(name), *summaries], rows, class_="numbers captioned")


def _inside(values: Any, *keys: str) -> Any:
    """What lies under these keys, if all of them are there."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _result(numbers: Any, found: dict[str, Any], words: Words) -> Html:
    tables = _score_tables("Scores", numbers, words.names) if isinstance(numbers, dict) else []
    return join(
        tables,
        _confusion(found.get("confusion")),
        _confusions(found.get("confusions")),
        _worst(found.get("worst"), words),
    )


def _score_tables(name: str, group: dict[str, Any], names: Mapping[str, str]) -> list[Html]:
    """Plain numbers in one table, then a table for every group of numbers; numbers by label side by side."""
    caption = names.get(name, name)
    nested = {key: value for key, value in group.items() if isinstance(value, dict) and value}
    if nested and len(nested) == len(group) and not any(_has_groups(values) for values in nested.values()):
        columns = list(dict.fromkeys(key for values in nested.values() for key in values))
        rows = [[printable(str(key)), *(_score(values.get(c))[0] for c in columns)] for key, values in nested.items()]
        return [table(caption, ["", *map(_words, columns)], rows, class_="numbers captioned")]
    plain = {key: value for key, value in group.items() if not isinstance(value, (dict, list))}
    single = [[names.get(key, _words(key)), *_score(value)] for key, value in plain.items()]
    tables = [table(caption, ["score", "value", ""], single, class_="numbers captioned")] if single else []
    for key, values in nested.items():
        title = _words(key) if name == "Scores" else f"{name}, {_words(key)}"
        tables += _score_tables(title, values, names)
    return tables


def _has_groups(values: dict[str, Any]) -> bool:
    return any(isinstance(value, dict) for value in values.values())


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


def _confusions(confusions: Any) -> Html | None:
    """The most frequent mistakes, where nobody counted the whole square."""
    if not isinstance(confusions, list):
        return None
    found = [entry for entry in confusions if isinstance(entry, list) and len(entry) == 3]
    found = [entry for entry in found if number({"count": entry[2]}, "count") is not None]
    if not found:
        return None
    most = max(count for _, _, count in found) or 1
    rows = [[printable(str(gold)), printable(str(got)), f"{count:,}", bar(count / most)] for gold, got, count in found]
    return table("Most frequent mistakes", ["gold", "predicted", "count", ""], rows, class_="numbers captioned")


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


def _worst(worst: Any, words: Words) -> Html | None:
    """Word by word, or whole texts: the gold label under it, and below, struck out, the wrong prediction."""
    if not isinstance(worst, list) or not worst:
        return None
    sentences = [_sentence(entry) for entry in worst[:_MOST_SENTENCES]]
    about = f"Under a {words.unit} its gold label; struck out below, what was predicted instead."
    return join(
        tag("h3", f"Worst {words.examples}"),
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
