"""The verbs `finetune` and `tag`: arguments enter, one call each."""

import argparse
from collections.abc import Callable

Run = Callable[[argparse.Namespace], int | None]


def finetune(parser: argparse.ArgumentParser) -> Run:
    """Arguments of `bertkit finetune`."""
    from bertkit.cli.training import add_recipe_arguments
    from bertkit.finetune.config import FinetuneRecipe, read_finetune_recipe

    add_recipe_arguments(parser, FinetuneRecipe, "finetune", example="data.train=my.conll")

    def run(arguments: argparse.Namespace) -> int:
        from bertkit.recipe import to_yaml

        recipe = read_finetune_recipe(arguments.recipe, arguments.changes)
        if arguments.print_config:
            print(to_yaml(recipe), end="")
            return 0
        from bertkit.finetune.train import finetune

        return finetune(recipe)

    return run
