"""A model card names its pipeline for the hub, and ends with the recipe."""

from bertkit.hf.card import framed_card


def test_the_lines_stand_between_what_the_hub_reads_and_the_recipe():
    card = framed_card("mine", "fill-mask", ["Some words."], "train:\n  steps: 3\n")
    parts = ["pipeline_tag: fill-mask", "# mine", "Some words.", "train:"]
    assert sorted(map(card.index, parts)) == list(map(card.index, parts))
