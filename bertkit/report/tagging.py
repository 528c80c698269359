"""The scores of a fine-tuned model, what it confuses and its worst sentences, as scores.json holds them.

Every seed has a result for dev and test: numbers, "confusions" ([gold, predicted, count]) and "worst" ([{"words":
[...], "gold": [...], "predicted": [...]}]). Any of it may be missing, or something else in a file that others wrote.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from bertkit.report.markup import Html, bar, join, table, tag
from bertkit.report.runs import Run, number
from bertkit.terminal import printable

_MOST_SENTENCES = 20


def words_of(task: str) -> Any:
    """The row of a fine-tuning task, for its words; general words where nobody here knows the task."""
    from bertkit.finetune.tasks import TASKS  # here, because a page of pretraining needs no task

    if task in TASKS:
        return TASKS[task]
    return SimpleNamespace(unit="answer", examples="examples", names={}, columns=())


def tagger_parts(run: Run) -> Html | None:
    """What scores.json holds, part by part; None without one."""
    if run.scores is None:
        return None
    best, words = best_seed(run.scores), words_of(run.task)
    splits = {name: best[name] for name in ("test", "dev") if isinstance(best.get(name), dict)}
    parts: list[Any] = [_seeds(run.scores)]
    for name, found in splits.items():
        parts += [tag("h3", f"{name.capitalize()} {words.examples}"), _result(found, words)]
    return join(*parts)


def best_seed(scores: dict[str, Any]) -> dict[str, Any]:
    """The result of the seed that was chosen."""
    seeds = scores.get("seeds")
    found = [seed for seed in seeds if isinstance(seed, dict)] if isinstance(seeds, list) else []
    chosen = [seed for seed in found if seed.get("seed") == scores.get("best_seed")]
    return (chosen or found or [{}])[0]


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


def _result(found: dict[str, Any], words: Any) -> Html:
    numbers = {key: value for key, value in found.items() if not isinstance(value, list)}
    return join(
        _score_tables("Scores", numbers, words.names),
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


def _confusions(confusions: Any) -> Html | None:
    """The most frequent mistakes."""
    if not isinstance(confusions, list):
        return None
    found = [entry for entry in confusions if isinstance(entry, list) and len(entry) == 3]
    found = [entry for entry in found if number({"count": entry[2]}, "count") is not None]
    if not found:
        return None
    most = max(count for _, _, count in found) or 1
    rows = [[printable(str(gold)), printable(str(got)), f"{count:,}", bar(count / most)] for gold, got, count in found]
    return table("Most frequent mistakes", ["gold", "predicted", "count", ""], rows, class_="numbers captioned")


def _worst(worst: Any, words: Any) -> Html | None:
    """Word by word, or whole texts: the gold label under it, and below, struck out, the wrong prediction."""
    if not isinstance(worst, list) or not worst:
        return None
    sentences = [tag("li", _sentence(entry)) for entry in worst[:_MOST_SENTENCES] if isinstance(entry, dict)]
    about = f"Under a {words.unit} its gold label; struck out below, what was predicted instead."
    return join(
        tag("h3", f"Worst {words.examples}"),
        tag("p", about, class_="about"),
        tag("ol", sentences, class_="sentences"),
    )


def _sentence(entry: dict[str, Any]) -> Html:
    columns = [column if isinstance(column := entry.get(key), list) else [] for key in ("words", "gold", "predicted")]
    return tag("p", [_word(*map(str, word)) for word in zip(*columns, strict=False)], class_="tagged")


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
