"""The verb `ablate`: a recipe and keys with several values enter, a table and a page that compare them leave."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertkit.cli.answers import add_json, answer
from bertkit.terminal import printable


def ablate(parser: ArgumentParser) -> Callable[[Namespace], int]:
    parser.epilog = (
        "examples:\n"
        "  bertkit ablate modernbert-mini data.corpus=my.txt 'mask.rate=[0.15,0.3,0.4]' train.minutes=2 --seeds 3\n"
        "  bertkit ablate modernbert-mini data.corpus=my.txt 'optim.name=[adamw,muon]' 'train.global_batch=[8,32]'\n\n"
        "Arms get the budget of the recipe: equal steps, tokens or minutes. The same command resumes."
    )
    parser.add_argument("recipe", metavar="RECIPE", help="name of a shipped recipe, or path of a YAML file")
    parser.add_argument(
        "changes", metavar="key=value", nargs="*", help="changes to the recipe; 'key=[a,b,c]' makes one arm per value"
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each arm (default: 3)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the runs (default: runs/ablate-RECIPE)")
    add_json(parser)
    return _ablate


def _ablate(arguments: Namespace) -> int:
    if arguments.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {arguments.seeds}")
    folder = arguments.out or Path("runs") / f"ablate-{Path(arguments.recipe).stem}"
    from bertkit.pretrain.ablate import PAGE, ablate, comparison, plan_ablation
    from bertkit.report.page import check_page

    check_page(folder / PAGE)
    ablation = plan_ablation(arguments.recipe, arguments.changes, arguments.seeds, folder)
    code, ended = ablate(ablation)
    if code:
        return code
    from bertkit.report.ablation_page import write_ablation_page

    facts = comparison(ablation, ended)
    page = write_ablation_page(ablation, facts, folder / PAGE)
    answer(arguments.json, facts, lambda: _show(facts, page))
    return 0


def _show(facts: dict[str, Any], page: Path) -> None:
    scores = list(facts["arms"][0]["scores"])
    width = max(len(row["name"]) for row in facts["arms"]) + 2
    print(f"{'':<{width}}seeds" + "".join(f"{score:>10}{'difference (95%)':>28}" for score in scores))
    for row in facts["arms"]:
        cells = "".join(_cell(row["scores"].get(score), row["name"] == facts["baseline"]) for score in scores)
        print(f"{printable(row['name']):<{width}}{len(row['runs']):>5}{cells}")
    for row in facts["arms"]:
        if row["ended_early"]:
            print(f"{printable(row['name'])} ended after {len(row['runs'])} seeds: {row['ended_early']}")
    for note in facts["notes"]:
        print(f"note: {note}")
    print(f"each with {', '.join(facts['budget'])}; differences are to the first arm, seed by seed; {page}")


def _cell(score: dict[str, Any] | None, is_baseline: bool) -> str:
    if score is None:
        return f"{'–':>10}{'':>28}"
    from bertkit.pretrain.ablate import told_difference

    return f"{score['mean']:>10.4f}{told_difference(score, is_baseline):>28}"
