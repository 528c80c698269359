"""Every model_type computes what transformers computes, and is written back as what it was."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import assert_import_and_export_agree
from reference import reference_transformers
from safetensors.torch import load_file
from tiny import TINY, edit_config

import bertkit
from bertkit.cli import main
from bertkit.hf.model_types import MODEL_TYPES
from bertkit.model import MaskedLM, SequenceClassifier, TokenTagger, build_encoder

transformers = reference_transformers()
torch.set_num_threads(1)
HEADS = ["Model", "ForMaskedLM", "ForTokenClassification", "ForSequenceClassification"]
SHAPE = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 30,
}


def config_of(model_type, **values):
    """transformers' config of this type; DistilBERT spells the shape otherwise."""
    if model_type == "electra":
        values.setdefault("embedding_size", values.get("hidden_size", SHAPE["hidden_size"]))
    if model_type == "distilbert":
        spelled = {"num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "hidden_size": "dim"}
        spelled |= {"intermediate_size": "hidden_dim", "hidden_act": "activation"}
        values = {spelled.get(key, key): value for key, value in (SHAPE | values).items()}
        values = {key: value for key, value in values.items() if key not in ("type_vocab_size", "layer_norm_eps")}
        return transformers.DistilBertConfig(**values)
    return transformers.AutoConfig.for_model(model_type, **SHAPE | {"pad_token_id": 1} | values)


def model_of(config, head):
    torch.manual_seed(0)
    return getattr(transformers, f"AutoModel{head.removeprefix('Model')}").from_config(config)


@pytest.mark.parametrize("model_type", ["roberta", "xlm-roberta", "camembert", "distilbert", "electra"])
@settings(max_examples=12, deadline=None)
@given(
    head=st.sampled_from(HEADS),
    hidden_act=st.sampled_from(["gelu", "gelu_new", "relu", "silu", "swish"]),
    layer_norm_eps=st.sampled_from([1e-12, 1e-3]),
    type_vocab_size=st.integers(1, 3),
    pad=st.sampled_from([1, 0, 3]),
    tied=st.booleans(),
)
def test_outputs_gradients_and_weights_agree_with_transformers(
    tmp_path_factory, model_type, head, hidden_act, layer_norm_eps, type_vocab_size, pad, tied
):
    config = config_of(
        model_type, hidden_act=hidden_act, layer_norm_eps=layer_norm_eps, type_vocab_size=type_vocab_size,
        pad_token_id=pad, tie_word_embeddings=tied, num_labels=3, initializer_range=0.2,
    )  # fmt: skip
    theirs = model_of(config, head)
    auto_class = getattr(transformers, f"AutoModel{head.removeprefix('Model')}")
    assert_import_and_export_agree(theirs, auto_class, tmp_path_factory.mktemp("model"), [5, 1, 12])


def test_positions_begin_after_the_padding_id_and_their_table_is_whole_again_in_an_export(tmp_path):
    theirs = model_of(config_of("xlm-roberta", pad_token_id=3), "ForMaskedLM")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = bertkit.load(tmp_path / "theirs")
    table = theirs.roberta.embeddings.position_embeddings.weight
    assert ours.config.max_position_embeddings == 26
    assert torch.equal(ours.encoder.positions.weight, table[4:])
    bertkit.save(ours, tmp_path / "ours")
    written = load_file(tmp_path / "ours/model.safetensors")["roberta.embeddings.position_embeddings.weight"]
    assert written.shape == table.shape
    assert json.loads((tmp_path / "ours/config.json").read_text())["max_position_embeddings"] == 30


def test_a_sinusoidal_distilbert_stays_one(tmp_path):
    theirs = model_of(config_of("distilbert", sinusoidal_pos_embds=True), "ForMaskedLM")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = bertkit.load(tmp_path / "theirs")
    assert not ours.encoder.positions.weight.requires_grad
    bertkit.save(ours, tmp_path / "ours")
    assert json.loads((tmp_path / "ours/config.json").read_text())["sinusoidal_pos_embds"] is True


@pytest.mark.parametrize(
    ("model_type", "activation", "dropout"),
    [("bert", "tanh", 0.1), ("distilbert", "relu", 0.2), ("electra", "gelu", 0.1)],
)
def test_a_new_classifier_is_made_as_its_family_makes_one(model_type, activation, dropout, tmp_path):
    model_of(config_of(model_type), "Model").save_pretrained(tmp_path)
    classifier = SequenceClassifier(bertkit.load(tmp_path), ["a", "b"])
    style = classifier.config.heads()
    assert style.pooler == activation
    assert classifier.head.labels.dropout == dropout
    assert TokenTagger(bertkit.load(tmp_path), ["a", "b"]).head.dropout == 0.1


def test_an_electra_discriminator_is_a_bare_encoder_and_a_new_head_is_written_as_the_generators(tmp_path):
    theirs = transformers.ElectraForPreTraining(config_of("electra"))
    theirs.save_pretrained(tmp_path / "theirs")
    encoder = bertkit.load(tmp_path / "theirs")
    assert encoder.kind == "bare"
    model = MaskedLM(encoder, seed=1).eval()
    bertkit.save(model, tmp_path / "ours")
    again, report = transformers.ElectraForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    ids = torch.arange(5, 14)[None]
    torch.testing.assert_close(model(ids), again(ids).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("model_type", "head", "left"),
    [
        ("bert", "ForPreTraining", "bert.pooler.dense, cls.seq_relationship"),
        ("electra", "ForPreTraining", "discriminator_predictions.dense, discriminator_predictions.dense_prediction"),
        ("bert", "ForMaskedLM", None),
        ("bert", "ForSequenceClassification", None),
        ("roberta", "ForMaskedLM", None),
    ],
)
def test_heads_of_other_tasks_that_an_import_leaves_out_are_named(model_type, head, left, tmp_path, capsys):
    model_of(config_of(model_type), head).save_pretrained(tmp_path / "theirs")
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    told = capsys.readouterr().out.partition("left out")[2]
    assert told.partition(": ")[2].strip() == (left or "")


def test_an_electra_with_narrow_embeddings_is_refused_with_both_widths(tmp_path):
    model_of(config_of("electra", embedding_size=8), "Model").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"embedding_size = 8.*hidden_size = 16"):
        bertkit.load(tmp_path)


def test_a_model_type_that_nobody_knows_is_refused_with_the_known_ones(tmp_path):
    bertkit.save(build_encoder(TINY), tmp_path)
    edit_config(tmp_path, model_type="deberta")
    with pytest.raises(ValueError, match=rf"model_type .*{', '.join(MODEL_TYPES)}.*'deberta'"):
        bertkit.load(tmp_path)


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_config_without_model_type_is_read_by_its_class_or_its_weights_with_a_note(model_type, head, tmp_path):
    theirs = model_of(config_of(model_type), head)
    theirs.save_pretrained(tmp_path)
    expected = bertkit.load(tmp_path)
    path = tmp_path / "config.json"
    values = {key: value for key, value in json.loads(path.read_text()).items() if key != "model_type"}
    path.write_text(json.dumps(values))
    with pytest.warns(UserWarning, match=f"model_type.*'{model_type}'"):
        found = bertkit.load(tmp_path)
    assert found.config == expected.config
    path.write_text(json.dumps(values | {"architectures": None}))
    if head == "Model":
        with pytest.raises(ValueError, match=r"model_type.*bert, roberta"):
            bertkit.load(tmp_path)
    else:
        prefix = MODEL_TYPES[model_type].prefix
        with pytest.warns(UserWarning, match="has no model_type"):
            assert MODEL_TYPES[bertkit.load(tmp_path).config.model_type].prefix == prefix


def test_what_changes_nothing_is_written_again(tmp_path):
    kept = {"problem_type": "multi_label_classification", "finetuning_task": "cola", "bos_token_id": 7, "top_k": 50}
    bertkit.save(SequenceClassifier(build_encoder(TINY), ["a", "b"]), tmp_path / "one")
    edit_config(tmp_path / "one", **kept, transformers_version="4.1")
    bertkit.save(bertkit.load(tmp_path / "one"), tmp_path / "two")
    written = json.loads((tmp_path / "two/config.json").read_text())
    assert {key: written.get(key) for key in kept} == kept
    assert "transformers_version" not in written


@pytest.mark.parametrize("key", ["carried", "pooled_act", "head_act"])
def test_a_config_cannot_set_what_only_a_model_type_says(key, tmp_path):
    bertkit.save(build_encoder(TINY), tmp_path)
    edit_config(tmp_path, **{key: "relu"})
    with pytest.raises(ValueError, match=f"{key} = 'relu'"):
        bertkit.load(tmp_path)


def test_swish_is_silu(tmp_path):
    bertkit.save(build_encoder(replace(TINY, hidden_act="silu")), tmp_path)
    edit_config(tmp_path, hidden_act="swish")
    assert bertkit.load(tmp_path).config.hidden_act == "silu"


def test_the_weights_decide_where_num_labels_stands_beside_a_stale_id2label(tmp_path):
    bertkit.save(TokenTagger(build_encoder(TINY), ["O", "B", "I"]), tmp_path)
    edit_config(tmp_path, id2label={"0": "LABEL_0", "1": "LABEL_1"}, num_labels=3)
    assert bertkit.load(tmp_path).labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    edit_config(tmp_path, id2label={"0": "a", "1": "b", "2": "c"}, num_labels=2)
    assert bertkit.load(tmp_path).labels == ("a", "b", "c")


def test_a_weight_that_a_model_type_does_not_have_is_refused_before_anything_is_written(tmp_path):
    """A DistilBERT has no place for token types."""
    model = build_encoder(replace(TINY, model_type="distilbert", type_vocab_size=2))
    with pytest.raises(ValueError, match=r"distilbert .* 'types.weight'"):
        bertkit.save(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
