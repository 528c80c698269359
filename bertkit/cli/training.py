"""The verbs `pretrain`, `anneal` and `demo`, and the arguments of every verb that takes a recipe."""

import argparse
import dataclasses
import shutil
import textwrap
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertkit.config.fields import Entry
    from bertkit.config.recipe import Verb


def pretrain(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Arguments of `bertkit pretrain`."""
    from bertkit.config.fields import check_names
    from bertkit.config.recipe import Recipe, read_recipe, to_yaml
    from bertkit.pretrain.checks import NAMES, check_pretraining

    add_recipe_arguments(parser, Recipe, "pretrain", NAMES, example="train.minutes=5")

    def run(arguments: argparse.Namespace) -> int:
        recipe = read_recipe(arguments.recipe, arguments.changes)
        if arguments.print_config:
            check_names(recipe, NAMES)
            print(to_yaml(recipe), end="")
            return 0
        check_pretraining(recipe)
        if recipe.data.prepared is not None:
            from data_pipelines.rows.shards import begin_to_verify

            begin_to_verify(Path(recipe.data.prepared))  # while torch is imported
        from bertkit.pretrain.train import pretrain

        return pretrain(recipe)

    return run


def anneal(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    parser.epilog = (
        "examples:\n"
        "  bertkit anneal runs/long --minutes 10\n"
        "  bertkit anneal runs/long --from 4000 --steps 1000 --out runs/short train.average=0.05\n\n"
        "The result equals a run of this length with its decay there. The run itself is not\n"
        "touched and may still be training. The same command resumes the branch."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run with optim.schedule=wsd")
    parser.add_argument("changes", metavar="key=value", nargs="*", help="changes to its recipe")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument(
        "--minutes", type=float, metavar="N", help="minutes of decay, converted to steps by the speed of the run"
    )
    length.add_argument("--steps", type=int, metavar="N", help="how many steps to decay")
    parser.add_argument(
        "--from", type=int, dest="step", metavar="STEP", help="checkpoint to begin with (default: the newest that fits)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the branch (default: RUN-annealed-STEP)")
    return _anneal


def demo(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    parser.epilog = "The same command resumes; remove the folder to start over."
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="minutes for all stages together (default: 4, or what the resumed demo had)",
    )
    parser.add_argument("--dir", type=Path, default=Path("runs/demo"), help="folder to work in (default: runs/demo)")
    parser.add_argument(
        "--sentence", metavar="CODE", help="line of Python to tag at the end (default: asks for one on a terminal)"
    )

    def run(arguments: argparse.Namespace) -> int:
        if arguments.minutes is not None and not 0 < arguments.minutes < 100_000:
            raise ValueError(f"--minutes must be between 0 and 100,000, got {arguments.minutes}")
        from bertkit.demo.folder import agreed_minutes

        minutes = agreed_minutes(arguments.dir, arguments.minutes)
        from bertkit.demo.stages import demo

        return demo(arguments.dir, minutes, arguments.sentence)

    return run


def _anneal(arguments: argparse.Namespace) -> int:
    for name in ("minutes", "steps"):
        value = getattr(arguments, name)
        if value is not None and not value > 0:
            raise ValueError(f"--{name} must be above 0, got {value}")
    from bertkit.pretrain.anneal import branch

    recipe = branch(
        arguments.run,
        arguments.out,
        step=arguments.step,
        steps=arguments.steps,
        minutes=arguments.minutes,
        changes=arguments.changes,
    )
    from bertkit.pretrain.checks import check_pretraining
    from bertkit.pretrain.train import pretrain

    check_pretraining(recipe)
    return pretrain(recipe)


def add_recipe_arguments(
    parser: argparse.ArgumentParser, recipe: type, verb: "Verb", names: Mapping[str, Collection[str]], example: str
) -> None:
    """A recipe, changes to it, and help that lists both. `names` are the tables of keys whose values are rows."""
    parser.add_argument("recipe", metavar="RECIPE", help="name of a shipped recipe, or path of a YAML file")
    parser.add_argument("changes", metavar="key=value", nargs="*", help=f"changes to the recipe, such as {example}")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--print-config", action="store_true", help="print the resolved recipe and exit")
    about = "print one JSON object for each event, for a supervisor; all other text goes to standard error"
    output.add_argument("--json-log", action="store_true", help=about)
    parser.epilog = _recipes_and_keys(recipe, verb, names)


def _recipes_and_keys(recipe: type, verb: "Verb", names: Mapping[str, Collection[str]]) -> str:
    """Everything a recipe can say, with its help, below the list of recipes."""
    from bertkit.config.fields import entries
    from bertkit.config.recipe import headline, shipped_recipes

    width = min(shutil.get_terminal_size().columns, 118)
    lines = ["recipes:"]
    for name, path in shipped_recipes(verb).items():
        lines += textwrap.wrap(f"{name:<20} {headline(path)}", width, initial_indent="  ", subsequent_indent=" " * 23)
    shared = "; keys that several architectures share are listed once" if verb == "pretrain" else ""
    lines += ["", f"keys (in the recipe, or as key=value{shared}):"]
    for entry in entries(recipe):
        indent = " " * 6
        about = textwrap.wrap(
            entry.help, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        key = "\n".join([f"  {entry.key}{_default_and_choices(entry, names.get(entry.key) or entry.choices)}", *about])
        if key not in lines:
            lines.append(key)
    return "\n".join(lines)


def _default_and_choices(entry: "Entry", choices: Collection[Any]) -> str:
    given = entry.default not in (dataclasses.MISSING, None, "", ()) and entry.default != []
    if len(choices) == 1:
        return f" = {next(iter(choices))}"
    one_of = f"  [{' | '.join(map(str, choices))}]" if choices else ""
    return (f" = {_shown(entry.default)}" if given else "") + one_of


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, (list, tuple)) else str(value)
