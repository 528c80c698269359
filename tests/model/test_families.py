"""A family is a row: what no row has is refused, and what a recipe cannot set is marked."""

from dataclasses import dataclass, fields

import pytest
from tiny import TINY, both

from bertkit.model.config import EncoderConfig
from bertkit.model.encoder import Encoder
from bertkit.model.families import FAMILIES, family_of
from bertkit.model.heads import HEADS, MaskedLM, SequenceClassifier, TokenTagger
from bertkit.model.initialization import build_encoder, outline_encoder


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


@both
def test_every_model_tells_its_encoder_its_head_and_its_labels(config):
    encoder = build_encoder(config)
    assert isinstance(encoder, Encoder)
    assert (encoder.encoder, encoder.kind, encoder.labels) == (encoder, "bare", ())
    assert (MaskedLM(encoder).encoder, MaskedLM(encoder).kind, MaskedLM(encoder).labels) == (encoder, "masked-lm", ())
    for head in (TokenTagger, SequenceClassifier):
        model = head(encoder, ["a", "b"])
        assert (model.encoder, HEADS[model.kind], model.labels) == (encoder, head, ("a", "b"))


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_takes_the_pooler_and_only_a_classifier_begins_with_it(kind):
    encoder = outline_encoder(TINY, pooler=True)
    assert encoder.pooler is not None
    head = HEADS[kind]
    model = head(encoder, ["a", "b"]) if head.takes_labels else head(encoder)
    assert encoder.pooler is None
    assert not any(name.startswith("encoder.pooler") for name in model.state_dict())
    assert any(name.startswith("head.pooler") for name in model.state_dict()) == (kind == "classifier")


def test_what_stands_above_the_blocks_is_a_part_of_the_encoder():
    for name in FAMILIES:
        encoder = outline_encoder(FAMILIES[name].config(hidden_size=4, num_hidden_layers=1, num_attention_heads=2))
        parts = {part for part, _ in encoder.named_children()}
        assert {"tokens", "layers", *encoder.above_layers} <= parts
