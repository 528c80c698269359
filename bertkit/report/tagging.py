"""The scores of a fine-tuned model, what it confuses and its worst sentences, as scores.json holds them.

Every seed has a result for dev and test: numbers, "confusions" ([gold, predicted, count]) and "worst" ([{"words":
[...], "gold": [...], "predicted": [...]}]). Any of it may be missing, or something else in a file that others wrote.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from bertkit.report.markup import Html, bar, join, swatch, table, tag
from bertkit.report.runs import Run, mapping, number
from bertkit.terminal import printable

_MOST_SENTENCES = 20
_SPLITS = ("dev", "test")


def words_of(task: str) -> Any:
    """The row of a fine-tuning task, for its words; general words where nobody here knows the task."""
    from bertkit.finetune.tasks import TASKS  # here, because a page of pretraining needs no task

    if task in TASKS:
        return TASKS[task]
    return SimpleNamespace(unit="answer", examples="examples", names={}, columns=())


def score_section(runs: list[Run], tasks: Mapping[str, list[int]]) -> list[Html]:
    """The scores that decide, dev beside test, the baselines below: of every seed of one run, or of several runs."""
    scored = {task: [index for index in indices if runs[index].scores is not None] for task, indices in tasks.items()}
    if len(runs) == 1:
        found = [_warnings(runs[0]), _seeds(runs[0])] if runs[0].scores else []
        return [shown for shown in found if shown]
    parts = [shown for run in runs if (shown := _warnings(run))]
    return parts + [shown for indices in scored.values() if indices and (shown := _side_by_side(runs, indices))]


def tagger_parts(run: Run) -> Html | None:
    """What scores.json holds, part by part; None without one."""
    if run.scores is None:
        return None
    best, words = best_seed(run.scores), words_of(run.task)
    splits = {name: best[name] for name in _SPLITS if isinstance(best.get(name), dict)}
    numbers = {
        split: {key: value for key, value in found.items() if not isinstance(value, list)}
        for split, found in splits.items()
    }
    parts: list[Any] = _score_tables("Scores", numbers, words)
    for name, found in splits.items():
        parts += [_confusions(found.get("confusions"), name), _worst(found.get("worst"), words, name)]
    return join(*parts)


def _warnings(run: Run) -> Html | None:
    """What makes the scores of a run doubtful, said before them."""
    warnings = (run.scores or {}).get("warnings")
    if not isinstance(warnings, list) or not warnings:
        return None
    return tag("ul", [tag("li", f"{run.name}: {printable(str(warning))}") for warning in warnings], class_="warnings")


def best_seed(scores: dict[str, Any]) -> dict[str, Any]:
    """The result of the seed that was chosen."""
    seeds = scores.get("seeds")
    found = [seed for seed in seeds if isinstance(seed, dict)] if isinstance(seeds, list) else []
    chosen = [seed for seed in found if seed.get("seed") == scores.get("best_seed")]
    return (chosen or found or [{}])[0]


def baseline_scores(run: Run, key: str) -> dict[str, float]:
    """What guesses without a model score on dev, by their names."""
    baselines = _inside(run.scores, "dev", "baselines")
    found = {name: number(scores, key) for name, scores in (baselines or {}).items() if isinstance(scores, dict)}
    return {printable(str(name)): value for name, value in found.items() if value is not None}


def _seeds(run: Run) -> Html | None:
    """The score that decides, for every seed and every baseline; a mean and a deviation only of several seeds."""
    scores = run.scores or {}
    name, seeds = scores.get("score"), scores.get("seeds")
    if not isinstance(name, str) or not isinstance(seeds, list):
        return None
    summaries = {split: scores[split] for split in _SPLITS if isinstance(scores.get(split), dict)}
    found = [seed for seed in seeds if isinstance(seed, dict)]
    rows = [[f"seed {seed.get('seed')}", *_across(summaries, seed, name)] for seed in found]
    if len(found) > 1:
        rows.append(["mean of the seeds", *_across(summaries, summaries, "mean")])
        rows.append(["their deviation", *_across(summaries, summaries, "deviation")])
    title = _title(words_of(run.task), name)
    rows += _baseline_rows(summaries, name)
    return table(f"{title} of every seed", [title, *summaries], rows, class_="numbers captioned")


def _side_by_side(runs: list[Run], indices: list[int]) -> Html | None:
    """The score that decides, of every run of a task; baselines once where the runs have the same."""
    scored = [(index, runs[index].scores or {}) for index in indices]
    name = next((scores["score"] for _, scores in scored if isinstance(scores.get("score"), str)), None)
    if name is None:
        return None
    splits = [split for split in _SPLITS if any(isinstance(scores.get(split), dict) for _, scores in scored)]
    rows: list[list[Any]] = []
    for index, scores in scored:
        several = len(scores.get("seeds") or ()) > 1
        cells = []
        for split in splits:
            mean, deviation = (_score(_inside(scores, split, key))[0] for key in ("mean", "deviation"))
            cells.append(f"{mean} ± {deviation}" if several and mean != "–" else mean)
        rows.append([swatch(index, runs[index].name), *cells])
    baselines: list[list[Any]] = []
    for _, scores in scored:
        summaries = {split: scores.get(split) for split in splits}
        baselines += [row for row in _baseline_rows(summaries, name) if row not in baselines]
    title = _title(words_of(runs[indices[0]].task), name)
    return table(f"{title}, run by run", [title, *splits], [*rows, *baselines], class_="numbers captioned")


def _across(splits: Mapping[str, Any], values: Any, *keys: str) -> list[Any]:
    return [_score(_inside(values, split, *keys))[0] for split in splits]


def _baseline_rows(summaries: Mapping[str, Any], name: str) -> list[list[Any]]:
    names = dict.fromkeys(key for found in summaries.values() for key in _inside(found, "baselines") or {})
    rows = [
        [f"without a model: {printable(key)}", *_across(summaries, summaries, "baselines", key, name)] for key in names
    ]
    return sorted(rows, key=lambda row: row[1:])


def _inside(values: Any, *keys: str) -> Any:
    """What lies under these keys, if all of them are there."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _score_tables(name: str, splits: dict[str, dict[str, Any]], words: Any) -> list[Html]:
    """Plain numbers in one table, dev beside test, then a table for every group of numbers; numbers by label in one
    table, the most frequent label first."""
    caption = words.names.get(name, _words(name))
    keys = list(dict.fromkeys(key for group in splits.values() for key in group))
    nested = [key for key in keys if any(isinstance(group.get(key), dict) and group[key] for group in splits.values())]
    inner = {key: {split: mapping(group.get(key)) for split, group in splits.items()} for key in nested}
    if (
        nested
        and nested == keys
        and not any(_has_groups(group) for groups in inner.values() for group in groups.values())
    ):
        return [_by_label(caption, inner, list(splits))]
    plain = [
        key for key in keys if key not in nested and not any(isinstance(g.get(key), list) for g in splits.values())
    ]
    important = [column.key for column in words.columns]
    plain.sort(key=lambda key: important.index(key) if key in important else len(important))
    rows = [
        [words.names.get(key, _words(key)), *(cell for group in splits.values() for cell in _score(group.get(key)))]
        for key in plain
    ]
    head = ["score", *(cell for split in splits for cell in (split, ""))]
    tables = [table(caption, head, rows, class_="numbers captioned")] if rows else []
    for key in nested:
        title = str(key) if name == "Scores" else f"{name}, {key}"
        tables += _score_tables(title, {split: group for split, group in inner[key].items() if group}, words)
    return tables


def _by_label(caption: str, inner: dict[str, dict[str, dict[str, Any]]], splits: list[str]) -> Html:
    columns = [
        (split, key)
        for split in splits
        for key in dict.fromkeys(key for groups in inner.values() for key in groups.get(split, {}))
    ]

    def frequency(label: str) -> float:
        return -sum(number(group, "gold") or 0 for group in inner[label].values())

    rows = [
        [printable(str(label)), *(_score(inner[label][split].get(key))[0] for split, key in columns)]
        for label in sorted(inner, key=frequency)
    ]
    head = [f"{split} {_words(key)}" if len(splits) > 1 else _words(key) for split, key in columns]
    return table(caption, ["", *head], rows, class_="numbers captioned")


def _title(words: Any, name: str) -> str:
    return next((column.title for column in words.columns if column.key == name), _words(name))


def _has_groups(values: dict[str, Any]) -> bool:
    return any(isinstance(value, dict) for value in values.values())


def _score(value: Any) -> tuple[Any, Any]:
    """A score as text, and as a bar where it is a share."""
    if isinstance(value, float) and 0 <= value <= 1:
        return f"{value:.1%}", bar(value)
    if number({"value": value}, "value") is not None:
        return f"{value:,}" if isinstance(value, int) else f"{value:.3f}", None
    return "–" if value is None else printable(str(value)), None


def _confusions(confusions: Any, split: str) -> Html | None:
    """The most frequent mistakes."""
    if not isinstance(confusions, list):
        return None
    found = [entry for entry in confusions if isinstance(entry, list) and len(entry) == 3]
    found = [entry for entry in found if number({"count": entry[2]}, "count") is not None]
    if not found:
        return None
    most = max(count for _, _, count in found) or 1
    rows = [[printable(str(gold)), printable(str(got)), f"{count:,}", bar(count / most)] for gold, got, count in found]
    return table(
        f"Most frequent mistakes in {split}", ["gold", "predicted", "count", ""], rows, class_="numbers captioned"
    )


def _worst(worst: Any, words: Any, split: str) -> Html | None:
    """Word by word, or whole texts: the gold label under it, and below, struck out, the wrong prediction."""
    if not isinstance(worst, list) or not worst:
        return None
    sentences = [tag("li", _sentence(entry)) for entry in worst[:_MOST_SENTENCES] if isinstance(entry, dict)]
    about = f"Under a {words.unit} its gold label; struck out below, what was predicted instead."
    return join(
        tag("h3", f"Worst {words.examples} of {split}"),
        tag("p", about, class_="about"),
        tag("ol", sentences, class_="sentences"),
    )


def _sentence(entry: dict[str, Any]) -> Html:
    columns = [column if isinstance(column := entry.get(key), list) else [] for key in ("words", "gold", "predicted")]
    return tag("p", [_word(*map(str, word)) for word in zip(*columns, strict=False)], class_="tagged")


def _word(word: str, gold: str, predicted: str) -> Html:
    return labeled_word(word, gold, None if gold == predicted else tag("s", printable(predicted), class_="predicted"))


def labeled_word(word: str, label: str, remark: Html | None) -> Html:
    """A word over its label and what is to be said of it; an O without a remark is left out."""
    shown = None if label == "O" and remark is None else tag("span", printable(label), class_="gold")
    class_ = "word" if remark is None else "word wrong"
    return join(tag("span", tag("span", printable(word)), shown, remark, class_=class_), " ")


def _words(name: Any) -> str:
    return printable(str(name)).replace("_", " ")
