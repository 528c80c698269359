"""A model card names its pipeline for the hub, and ends with the recipe."""

from bertkit.config.recipe import read_recipe
from bertkit.run.card import framed_card


def test_the_lines_stand_between_what_the_hub_reads_and_the_recipe():
    recipe = read_recipe("bert-mini", ["data.corpus=text.txt", "run.dir=runs/mine"])
    card = framed_card(recipe, "fill-mask", ["Some words."])
    parts = ["pipeline_tag: fill-mask", "# mine", "Some words.", "train:"]
    assert sorted(map(card.index, parts)) == list(map(card.index, parts))
