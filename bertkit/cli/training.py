"""The verbs `pretrain` and `evaluate`: arguments enter, one call each."""

import argparse
import dataclasses
import typing
from collections.abc import Callable


def pretrain(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Arguments of `bertkit pretrain`."""
    parser.add_argument("recipe", metavar="RECIPE", help="name of a shipped recipe, or path of a YAML file")
    parser.add_argument(
        "changes", metavar="key=value", nargs="*", help="changes to the recipe, such as train.minutes=5"
    )
    parser.add_argument("--print-config", action="store_true", help="print the resolved recipe and do nothing else")
    parser.epilog = _recipes_and_keys()

    def run(arguments: argparse.Namespace) -> int:
        from bertkit.recipe import read_recipe, to_yaml

        recipe = read_recipe(arguments.recipe, arguments.changes)
        if arguments.print_config:
            print(to_yaml(recipe), end="")
            return 0
        from bertkit.training.pretrain import pretrain

        return pretrain(recipe)

    return run


def evaluate(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Arguments of `bertkit evaluate`."""
    from bertkit.fields import add_flags, from_flags
    from bertkit.training.config import EvaluateConfig

    parser.add_argument("model", metavar="MODEL", help="folder of a model, or of a run with an export")
    parser.add_argument("corpus", metavar="CORPUS", nargs="+", help="text files, folders, globs or hf:NAME")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    add_flags(parser, EvaluateConfig)

    def run(arguments: argparse.Namespace) -> int:
        config = from_flags(EvaluateConfig, arguments)
        from bertkit.training.evaluate_folder import evaluate_folder, print_scores

        scores = evaluate_folder(arguments.model, arguments.corpus, config)
        print_scores(scores, as_json=arguments.json)
        return 0

    return run


def _recipes_and_keys() -> str:
    """Everything a recipe can say, with its help, below the list of recipes."""
    from bertkit.fields import entries
    from bertkit.recipe import Recipe, headline, shipped_recipes

    lines = ["recipes:"]
    lines += [f"  {name:<20} {headline(path)}" for name, path in shipped_recipes().items()]
    lines += ["", "keys (in the recipe, or as key=value):"]
    for entry in entries(Recipe):
        default = "" if entry.default in (dataclasses.MISSING, None, "", ()) or entry.default == [] else entry.default
        if typing.get_origin(entry.kind) is typing.Literal:
            choices = typing.get_args(entry.kind)
            default = (
                f"{default} of {', '.join(map(str, choices))}" if default != "" else " or ".join(map(str, choices))
            )
        lines.append(f"  {entry.key}" + (f"  [{default}]" if default != "" else ""))
        lines.append(f"      {entry.help}")
    return "\n".join(lines)
