"""A model section of any kind answers the same questions; there is a kind for each encoder family."""

from dataclasses import dataclass, fields

import pytest
import yaml

from bertkit.config.fields import entries
from bertkit.config.model_section import model_sections
from bertkit.config.recipe import Recipe, read_recipe, to_yaml
from bertkit.model.config import BertConfig
from bertkit.model.families import FAMILIES, Family

CORPUS = "data.corpus=my.txt"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_a_section_with_its_own_defaults(name):
    section, config = model_sections()[name](architecture=name), FAMILIES[name].config
    assert (section.architecture, section.init, list(section.old_domain), section.embeddings) == (
        name,
        None,
        [],
        "random",
    )
    assert section.encoder_config(99, 3) == config(vocab_size=99, pad_token_id=3)
    own = {field.name for field in fields(config)} - set(FAMILIES[name].set_by)
    assert {field.name for field in fields(section)} == {"architecture", "embeddings", *own}


def test_a_shape_that_no_encoder_can_have_is_refused():
    with pytest.raises(ValueError, match=r"^hidden_size must be a multiple of num_attention_heads"):
        model_sections()["bert"](architecture="bert", hidden_size=10, num_attention_heads=3)


def test_an_imported_model_has_no_shape_to_ask_for():
    section = model_sections()["imported"](architecture="imported", init="folder")
    assert (section.init, section.old_domain, section.embeddings) == ("folder", [], "given")
    with pytest.raises(ValueError, match=r"model\.init=folder"):
        section.encoder_config(99, 3)


def test_a_family_that_is_added_has_a_section_at_once(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class TinyConfig(BertConfig):
        """The encoder of this test."""

        twist: float = 0.5
        """How far it turns."""

    monkeypatch.setitem(FAMILIES._rows, "tiny", Family(TinyConfig, "bertkit.model.bert:Bert"))
    recipe = read_recipe("bert-mini", [CORPUS, "model.architecture=tiny", "model.twist=0.25"])
    assert recipe.model.encoder_config(99, 0) == TinyConfig(vocab_size=99, twist=0.25)
    assert yaml.safe_load(to_yaml(recipe))["model"]["twist"] == 0.25
    notes = {entry.key: entry.help for entry in entries(Recipe)}
    assert notes["model.twist"] == "How far it turns."
