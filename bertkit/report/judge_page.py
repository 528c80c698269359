"""The page of judged minimal pairs: accuracy by group and paradigm, and the pairs that the model gets most wrong."""

from pathlib import Path
from typing import Any

from bertkit.evaluate.judge import CHANCE, Judgment, above_chance, below_chance
from bertkit.report.markup import Html, bar, table, tag
from bertkit.report.page import report, section, write_page
from bertkit.terminal import printable

_MISTAKES = 20


def write_judge_page(judgment: Judgment, path: Path) -> None:
    facts = judgment.facts
    heading = f"{facts['accuracy']:.1%} of {facts['num_pairs']:,} minimal pairs"
    about = f"{printable(facts['model'])}, {facts['method']}; {_interval(facts)}; chance is {CHANCE:.0%}."
    sections, title = [_accuracy(facts), _mistakes(judgment)], f"{facts['model']} – bertkit judge"
    write_page(path, report("judge", heading, [tag("p", about)], sections, title=title))


def _accuracy(facts: dict[str, Any]) -> Html:
    about = (
        "A pair is right if the good sentence has the higher pseudo-log-likelihood; a tie counts half. "
        "▲ and ▼ mark paradigms whose 95% interval lies above or below chance. Paradigms count alike in what sums them."
    )
    counted = facts["ngram"] is not None
    if counted:
        about += f" Beside it a {facts['ngram']['order']}-gram model of the run's own rows."

    def row(name: Any, found: dict[str, Any]) -> list[Any]:
        ngram = [f"{found['ngram_accuracy']:.1%}"] if counted else []
        level = bar(found["accuracy"], "run-0")
        return [
            name,
            f"{found['num_pairs']:,}",
            f"{found['accuracy']:.1%}",
            level,
            _interval(found),
            found["ties"],
            *ngram,
        ]

    rows = [row(tag("b", "all"), facts)]
    for group in [*facts["groups"], ""]:
        if group:
            rows.append(row(tag("b", printable(group)), facts["groups"][group]))
        for name, found in facts["paradigms"].items():
            if found["group"] == group:
                mark = " ▲" if above_chance(found) else " ▼" if below_chance(found) else ""
                rows.append(row(printable(name) + mark, found))
    head = ["paradigm", "pairs", "accuracy", "", "95% interval", "ties", *(["n-gram"] if counted else [])]
    return section("By paradigm", tag("p", about, class_="about"), table("Accuracy", head, rows), id="paradigms")


def _mistakes(judgment: Judgment) -> Html | None:
    """The pairs whose bad sentence is ahead the most."""
    ahead_P = judgment.scores_P2[:, 1] - judgment.scores_P2[:, 0]
    worst = [int(place) for place in (-ahead_P).argsort(kind="stable")[:_MISTAKES] if ahead_P[place] > 0]
    if not worst:
        return None
    rows = [
        [printable(pair.paradigm), printable(pair.good), printable(pair.bad), f"{ahead_P[place]:.2f}"]
        for place in worst
        for pair in [judgment.pairs[place]]
    ]
    about = tag("p", "The pairs whose bad sentence is ahead the most, and by how many nats.", class_="about")
    head = ["paradigm", "good", "bad", "nats"]
    return section("Worst mistakes", about, table("Worst mistakes", head, rows, class_="settings"), id="mistakes")


def _interval(found: dict[str, Any]) -> str:
    return f"{found['low']:.1%} – {found['high']:.1%}"
