"""The page of an ablation: the arms beside the first one, then the curves of all runs."""

from pathlib import Path
from typing import Any

from bertkit.pretrain.ablate import Ablation, told_difference
from bertkit.report.curves import LEARNING, chart_data, figures
from bertkit.report.markup import Html, table, tag
from bertkit.report.page import report, section, write_page
from bertkit.report.runs import read_runs
from bertkit.terminal import printable


def write_ablation_page(ablation: Ablation, facts: dict[str, Any], path: Path) -> Path:
    folders = [Path(recipe.run.dir) for recipe in ablation.recipes.values()]
    runs = read_runs([folder for folder in folders if (folder / "metrics.jsonl").is_file()])
    heading = f"{len(ablation.arms)} arms, {facts['num_seeds']} seeds"
    lead = [tag("p", f"Each with {', '.join(facts['budget'])}.")]
    sections = [_arms(facts), section("Curves", figures(LEARNING, runs), id="curves")]
    data = chart_data(LEARNING, runs)
    write_page(
        path, report("ablate", heading, lead, sections, title="bertkit ablate", data=data, scripts=["charts.js"])
    )
    return path


def _arms(facts: dict[str, Any]) -> Html:
    about = (
        f"Differences are to {facts['baseline']}, in pairs: two runs with one seed begin with the same weights and see "
        "the same rows and masks, unless an arm changes them. In brackets 95% intervals over the seeds."
    )
    scores = list(facts["arms"][0]["scores"])
    head = ["arm", "seeds", *(part for score in scores for part in (score, "± over seeds", "difference"))]
    rows = []
    for arm in facts["arms"]:
        row: list[Any] = [printable(arm["name"]), len(arm["runs"])]
        for score in scores:
            row += _cells(arm["scores"].get(score), arm["name"] == facts["baseline"])
        rows.append(row)
    told = [f"{arm['name']} ended early: {arm['ended_early']}" for arm in facts["arms"] if arm["ended_early"]]
    notes = [tag("li", printable(note)) for note in (*told, *facts["notes"])]
    return section(
        "Arms",
        tag("p", about, class_="about"),
        tag("ul", notes, class_="notes") if notes else None,
        table("Arms", head, rows),
        id="arms",
    )


def _cells(score: dict[str, Any] | None, is_baseline: bool) -> list[str]:
    if score is None:
        return ["–"] * 3
    deviation = "–" if score["deviation"] is None else f"{score['deviation']:.4f}"
    return [f"{score['mean']:.4f}", deviation, told_difference(score, is_baseline) or "–"]
