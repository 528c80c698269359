"""Names and settings are two-way: what is written is read back as it was, weight by weight and key by key."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import TINY, TINY_MODERN

from bertkit.hf.bert import BERT, bert_names
from bertkit.hf.config import read_config, write_config
from bertkit.hf.distilbert import DISTILBERT
from bertkit.hf.electra import ELECTRA
from bertkit.hf.model_types import MODEL_TYPES
from bertkit.hf.modernbert import MODERNBERT
from bertkit.hf.names import Weight
from bertkit.hf.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA

ROWS = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": XLM_ROBERTA, "camembert": CAMEMBERT, "distilbert": DISTILBERT,
    "electra": ELECTRA, "modernbert": MODERNBERT,
}  # fmt: skip
OWN = {
    "roberta": {"pad_token_id": 1, "head_act": "gelu"},
    "distilbert": {"type_vocab_size": 0, "pooled_act": "relu", "pooled_dropout": 0.3},
    "electra": {"head_act": "gelu", "pooled_act": "gelu"},
}


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_config_that_was_written_is_read_as_it_was(model_type):
    row = MODEL_TYPES[model_type]
    assert row is ROWS[model_type]
    tiny = TINY_MODERN if row is MODERNBERT else TINY
    own = OWN["roberta"] if row.prefix == "roberta." else OWN.get(model_type, {})
    config = replace(tiny, model_type=model_type, hidden_size=32, tie_word_embeddings=False, **own)
    found = read_config(write_config(config), model_type, Path("config.json"))
    # ModernBERT's kinds of attention are written out.
    expected = replace(config, layer_types=found.layer_types) if row is MODERNBERT else config
    assert found == expected
    assert found.windows() == config.windows()


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_no_two_parts_of_an_encoder_share_a_name(model_type):
    names = MODEL_TYPES[model_type].names
    theirs = [part for ours, name in names.items() if not ours.startswith("head.") for part in
              ((name,) if isinstance(name, str) else name)]  # fmt: skip
    assert len(set(theirs)) == len(theirs)
    assert all(part.startswith(MODEL_TYPES[model_type].prefix) for part in theirs)


def test_families_of_bert_differ_in_their_prefix():
    ours = bert_names("a.")
    assert {name: str(theirs).replace("a.", "b.") for name, theirs in ours.items()} == {
        name: str(theirs) for name, theirs in bert_names("b.").items()
    }


def test_a_weight_of_several_is_one_above_the_other():
    row = Weight("qkv", ("q", "k", "v"))
    parts = {"q": torch.tensor([[1.0]]), "k": torch.tensor([[2.0]]), "v": torch.tensor([[3.0]])}
    assert row.read(parts).tolist() == [[1.0], [2.0], [3.0]]
    assert {name: row.write(name, row.read(parts)).tolist() for name in row.written} == {
        "q": [[1.0]],
        "k": [[2.0]],
        "v": [[3.0]],
    }
    assert row.shapes((3, 1)) == {"q": (1, 1), "k": (1, 1), "v": (1, 1)}


def test_rows_that_are_never_looked_up_are_skipped_and_written_as_zeros():
    row = Weight("positions", ("table",), skip=2)
    table = torch.arange(5.0)[:, None]
    assert row.read({"table": table}).tolist() == [[2.0], [3.0], [4.0]]
    assert row.write("table", row.read({"table": table})).tolist() == [[0.0], [0.0], [2.0], [3.0], [4.0]]
    assert row.shapes((3, 1)) == {"table": (5, 1)}
