"""What is dangerous, damaged or does not fit is refused by name, before it is opened or anything is allocated."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import TINY, TINY_MODERN, both, edit_config

import bertkit
from bertkit.hf.files import Weights
from bertkit.hf.models import checked_outline
from bertkit.model import MaskedLM, TokenTagger, build_encoder

torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path):
    bertkit.save(MaskedLM(build_encoder(TINY, seed=1)), tmp_path / "model")
    return tmp_path / "model"


def test_a_shard_index_cannot_reach_outside_its_folder(folder):
    (folder / "model.safetensors").rename(folder.parent / "secret.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../secret.safetensors"}}')
    with pytest.raises(ValueError, match=r".safetensors"):
        bertkit.load(folder)


@pytest.mark.parametrize("tied", [True, False])
def test_of_two_biases_that_differ_none_is_guessed(tied, tmp_path):
    """Where nothing is tied, transformers adds the decoder's and never looks at the other one."""
    bertkit.save(MaskedLM(build_encoder(replace(TINY, tie_word_embeddings=tied), seed=1)), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"] + 1
    save_file(tensors, tmp_path / "model.safetensors")
    if tied:
        with pytest.raises(ValueError, match=r"'cls.predictions.decoder.bias' differs from 'cls.predictions.bias'"):
            bertkit.load(tmp_path)
    else:
        assert torch.equal(bertkit.load(tmp_path).head.decoder_bias, tensors["cls.predictions.decoder.bias"])


def test_a_bias_that_the_config_does_not_know_is_refused(tmp_path):
    bertkit.save(MaskedLM(build_encoder(replace(TINY_MODERN, decoder_bias=False))), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {"decoder.bias": torch.zeros(200)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"'decoder.bias' has no place"):
        bertkit.load(tmp_path)


def test_a_model_on_its_way_is_only_an_encoder_or_a_head(tmp_path):
    with pytest.raises(ValueError, match=r"can be saved.*Linear"):
        bertkit.save(torch.nn.Linear(2, 2), tmp_path)


def test_a_flipped_bit_is_noticed(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 4
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged"):
        bertkit.load(folder)


class Planted:
    """A pickle that leaves a trace if anybody opens it."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.safetensors"])
def test_a_pickle_is_refused_and_its_code_never_runs(name, folder, tmp_path):
    trace = tmp_path / "trace"
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Planted(trace)))
    for place in (folder, folder / name):
        with pytest.raises(ValueError) as refused:
            bertkit.load(place)
        if name != "model.safetensors":
            assert "save_pretrained" in str(refused.value)
    assert not trace.exists()


def test_a_pickle_that_is_not_there_is_not_called_one(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        bertkit.load(tmp_path / "model.pt")


@pytest.mark.parametrize("header", [2**63, 2**40, 200_000_000, 10**6])
def test_an_oversized_header_is_refused(header, folder):
    (folder / "model.safetensors").write_bytes(header.to_bytes(8, "little") + b"{}" + bytes(1000))
    with pytest.raises(ValueError, match="safetensors"):
        bertkit.load(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"vocab_size": 201}, r"has shape \(200,.* config.json .*\(201,"),
        (
            {"hidden_size": 10**9, "num_attention_heads": 1},
            "hidden_size.* 1048576.* 1000000000",
        ),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers.* 1000.* 1000000000"),
        ({"num_hidden_layers": 1}, "num_hidden_layers.* 1.* 2"),
        ({"model_type": "t5"}, "model_type must be one of bert, roberta, .* modernbert, got 't5'"),
        ({"hidden_atc": "gelu"}, "'hidden_atc'.*'hidden_act'"),
        ({"is_decoder": True}, "is_decoder = True"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        ({"auto_map": {"AutoModel": "evil.py"}}, "auto_map = .* is not supported"),
        ({"hidden_act": "swiglu"}, "hidden_act must be one of"),
        ({"tie_word_embeddings": False}, "'cls.predictions.decoder.weight' is missing"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_before_anything_is_allocated(values, message, folder, monkeypatch):
    monkeypatch.setattr(Weights, "__getitem__", lambda weights, name: pytest.fail(f"{name} was read"))
    edit_config(folder, **values)
    with pytest.raises(ValueError, match=message):
        bertkit.load(folder)


def test_labels_that_do_not_fit_are_refused_with_both_sizes(tmp_path):
    bertkit.save(TokenTagger(build_encoder(TINY), ["O", "B", "I"]), tmp_path)
    edit_config(tmp_path, id2label={"0": "O", "1": "B"})
    with pytest.raises(ValueError, match=r"id2label.* 2.*'classifier.weight'.* 3"):
        bertkit.load(tmp_path)
    edit_config(tmp_path, architectures=["BertForMultipleChoice"])
    with pytest.raises(ValueError, match=r"only ...ForTokenClassification and ...ForSequenceClassification can be"):
        bertkit.load(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_labels": 10**9}, r"num_labels.* 1000000000.*'classifier.weight'.* 3"),
        ({}, r"num_labels.* 2.*'classifier.weight'.* 3"),
        ({"num_labels": "3"}, r"config.json: num_labels.* '3'"),
        ({"num_labels": True}, r"config.json: num_labels.* True"),
        ({"id2label": {"0": "O", "1": "B", "2": "B"}}, r"config.json: id2label.*distinct"),
        ({"id2label": {}}, r"config.json: id2label.*distinct"),
        ({"id2label": [1]}, r"config.json: id2label.* 0, 1, 2"),
        ({"architectures": 5}, r"config.json: architectures.* 5"),
        ({"architectures": {"a": 1}}, r"config.json: architectures"),
        ({"architectures": [[]]}, r"config.json: architectures"),
    ],
)
def test_labels_and_heads_that_make_no_sense_are_refused_by_key(values, message, tmp_path):
    bertkit.save(TokenTagger(build_encoder(TINY), ["O", "B", "I"]), tmp_path)
    edit_config(tmp_path, **{"id2label": None, "label2id": None} | values)
    with pytest.raises(ValueError, match=message):
        bertkit.load(tmp_path)


@both
@pytest.mark.filterwarnings("ignore:.*no model_type")
def test_any_value_under_any_key_is_understood_or_refused(config, tmp_path):
    bertkit.save(TokenTagger(build_encoder(config), ["O", "B"]), tmp_path)
    original = json.loads((tmp_path / "config.json").read_text())
    shapes = {name: tuple(t.shape) for name, t in load_file(tmp_path / "model.safetensors").items()}
    refusals = []
    junk = [None, True, -1, 0, 5, 10**10, 10**30, 0.5, "", "x", [], [1], [[]], {}, {"a": 1}, {"full_attention": 5}]
    for key in [*original, "rope_parameters", "num_labels", "pruned_heads", "rope_scaling", "auto_map"]:
        for value in junk:
            (tmp_path / "config.json").write_text(json.dumps(original | {key: value}))
            try:
                checked_outline(tmp_path, shapes)
            except ValueError as error:
                refusals.append(str(error))
    assert len(refusals) > 100
    assert [refusal for refusal in refusals if str(tmp_path) not in refusal or "\n" in refusal] == []


@pytest.mark.parametrize("ropes", [[1], 5, "x", {"full_attention": 5}, {"sliding_attention": [1]}])
def test_rope_settings_of_another_form_are_refused_by_key(ropes, tmp_path):
    bertkit.save(build_encoder(TINY_MODERN), tmp_path)
    edit_config(tmp_path, rope_parameters=ropes)
    with pytest.raises(ValueError, match=r"config.json: rope_parameters[.a-z_]* "):
        bertkit.load(tmp_path)


def test_rope_settings_that_are_not_ours_are_refused_by_name(tmp_path):
    bertkit.save(build_encoder(TINY_MODERN), tmp_path)
    edit_config(tmp_path, rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 1.0}})
    with pytest.raises(ValueError, match=r"rope_parameters.full_attention.rope_type = 'yarn'"):
        bertkit.load(tmp_path)


def test_a_weight_without_a_place_is_refused_by_name(folder):
    save_file(load_file(folder / "model.safetensors") | {"extra": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"'extra'.*BertForMaskedLM"):
        bertkit.load(folder)


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000])
def test_a_config_that_is_no_json_object_is_refused(text, folder):
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config.json"):
        bertkit.load(folder)
