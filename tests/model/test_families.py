"""A family is a row: what no row has is refused, and what a recipe cannot set is marked."""

from dataclasses import dataclass, fields

import pytest

from bertkit.model.build import build_encoder
from bertkit.model.config import EncoderConfig
from bertkit.model.families import FAMILIES, family_of


@dataclass(frozen=True, kw_only=True)
class NobodysConfig(EncoderConfig):
    """Of a family that has no row."""


def test_a_config_that_no_family_has_is_refused_not_taken_for_another():
    with pytest.raises(ValueError, match=r"NobodysConfig.* bert, modernbert"):
        build_encoder(NobodysConfig())


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_found_by_its_config(name):
    family = FAMILIES[name]
    assert family_of(family.config()) is family
    assert type(build_encoder(family.config(hidden_size=4, num_hidden_layers=1, num_attention_heads=2))) is (
        family.encoder
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_what_no_recipe_sets_is_a_field_with_a_default(name):
    family = FAMILIES[name]
    assert {"vocab_size", "pad_token_id"} <= set(family.set_by) <= {field.name for field in fields(family.config)}
