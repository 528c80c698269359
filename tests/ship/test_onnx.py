"""The ONNX graph of every family and head computes what torch computes, whatever the padding."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from parity import ragged_batch
from shipped import config_of, model_of, save_tagger
from small_model import save_small_model
from tiny import TINY, TINY_MODERN

import bertkit
from bertkit.cli import main
from bertkit.graph import HIDDEN
from bertkit.hf.folder import FULL, QUANTIZED
from bertkit.hf.info import describe
from bertkit.hf.model_types import MODEL_TYPES
from bertkit.hf.onnx import OnnxModel, open_graph
from bertkit.model.families import FAMILIES, family_of
from bertkit.model.heads import HEADS
from bertkit.ship.export import export_onnx
from bertkit.ship.onnx_file import graph_of, onnx_bytes

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch.set_num_threads(1)

OTHERS = {
    "window": replace(TINY_MODERN, num_hidden_layers=4, local_attention=6),
    "biases, mean": replace(TINY_MODERN, attention_bias=True, mlp_bias=True, norm_bias=True, classifier_pooling="mean"),
    "untied, no bias": replace(TINY_MODERN, tie_word_embeddings=False, decoder_bias=False),
    "tanh": replace(TINY, hidden_act="gelu_new"),
    "silu": replace(TINY, hidden_act="silu"),
    "relu": replace(TINY, hidden_act="relu"),
    "one type": replace(TINY, type_vocab_size=1),
}


def session_of(model):
    data = onnx_bytes(*graph_of(model), model)
    onnx.checker.check_model(data, full_check=True)
    return onnxruntime.InferenceSession(data)


@torch.inference_mode()
def assert_same_logits(model, ids, mask, **more):
    session = session_of(model)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids), **more}
    names = [one.name for one in session.get_inputs()]
    found = session.run(None, {name: given[name].numpy() for name in names})[0]
    expected = model(ids, mask, more.get("token_type_ids")).numpy()
    if expected.ndim == 3:
        found, expected = found[mask == 1], expected[mask == 1]
    assert np.abs(found - expected).max() < 1e-4
    assert np.abs(expected).max() > 0.1


def test_every_family_is_among_the_configs():
    assert {family_of(config_of(name)) for name in MODEL_TYPES} == {FAMILIES[name] for name in FAMILIES}


@pytest.mark.parametrize("kind", ["bare", *HEADS])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_model_type_and_head_gives_the_logits_of_torch(model_type, kind):
    assert_same_logits(model_of(config_of(model_type), kind), *ragged_batch(200, 1, [20, 3, 1, 13]))


@pytest.mark.parametrize("kind", ["bare", *HEADS])
@pytest.mark.parametrize("config", OTHERS.values(), ids=OTHERS)
def test_every_setting_that_changes_the_computation_does_so_in_the_graph(config, kind):
    assert_same_logits(model_of(config, kind), *ragged_batch(200, 0, [20, 3, 1, 13]))


@pytest.mark.parametrize("kind", ["tagger", "classifier"])
@pytest.mark.parametrize("config", [TINY, OTHERS["window"]], ids=["bert", "modernbert"])
def test_padding_may_stand_on_the_left(config, kind):
    ids, mask = ragged_batch(200, 0, [20, 3, 13])
    assert_same_logits(model_of(config, kind), ids.flip(1), mask.flip(1))


def test_token_types_are_an_input_where_the_model_has_several():
    ids, mask = ragged_batch(200, 0, [20, 7])
    types = (torch.arange(20) > 5).long().expand(2, 20).contiguous()
    assert_same_logits(model_of(TINY, "tagger"), ids, mask, token_type_ids=types)
    for name, expected in {"bert": 3, "roberta": 3, "distilbert": 2, "modernbert": 2}.items():
        assert len(session_of(model_of(config_of(name), "tagger")).get_inputs()) == expected


def test_a_row_of_padding_alone_harms_nobody():
    assert np.isfinite(np.float32(HIDDEN) * 2)
    ids, mask = ragged_batch(200, 0, [20, 7])
    mask[1] = 0
    model = model_of(TINY, "tagger")
    found = session_of(model).run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy(),
                                         "token_type_ids": np.zeros_like(ids)})[0]  # fmt: skip
    assert np.isfinite(found).all()


def test_the_opset_is_one_that_older_runtimes_read():
    model = model_of(TINY, "tagger")
    file = onnx.load_from_string(onnx_bytes(*graph_of(model), model))
    assert [(each.domain, each.version) for each in file.opset_import] == [("", 20)]
    assert file.ir_version <= 9


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_norm_has_a_bias_as_older_runtimes_expect(model_type):
    """Where one had none, onnxruntime 1.17 and 1.18 ended the process."""
    graph, _ = graph_of(model_of(config_of(model_type), "masked-lm"))
    norms = [node for node in graph.nodes if node.op == "LayerNormalization"]
    assert len(norms) > 3
    assert all(len(node.inputs) == 3 and node.inputs[2] in graph.weights for node in norms)


@pytest.fixture
def masked_lm(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("anna paints the old house near the station.\n" * 20)
    return save_small_model(tmp_path / "model", text, vocab_size=100, positions=16)


def test_the_folder_has_the_layout_that_others_expect(masked_lm, tmp_path, capsys):
    assert main(["export", str(masked_lm), str(tmp_path / "out"), "--format", "onnx"]) == 0
    assert "MaskedLM" in capsys.readouterr().out
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert written >= {FULL, "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert not [name for name in written if name.endswith(".safetensors")]
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    found = open_graph(tmp_path / "out")
    assert (found.kind, found.config.max_position_embeddings) == ("masked-lm", 16)
    rows = [np.array([2, 7, 8, 3]), np.array([2, 3])]
    model = bertkit.load(masked_lm)
    with torch.inference_mode():
        expected = model(torch.tensor(rows[0])[None])[0]
    assert np.abs(found(rows)[0] - expected.numpy()).max() < 1e-4


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_config_and_tokenizer_are_those_of_a_folder_with_weights(model_type, tmp_path):
    """Token types among the inputs of a pair, for one."""
    folder = save_tagger(tmp_path / "weights", config_of(model_type), "classifier")
    (folder / "README.md").write_text("a card")
    assert main(["export", str(folder), str(tmp_path / "copy")]) == 0
    export_onnx(folder, tmp_path / "onnx")
    names = {path.name for path in (tmp_path / "copy").iterdir()} - {"model.safetensors"}
    assert names == {path.name for path in (tmp_path / "onnx").iterdir()} - {"onnx"}
    assert names >= {"config.json", "tokenizer.json", "tokenizer_config.json", "README.md"}
    for name in names:
        assert (tmp_path / "onnx" / name).read_text() == (tmp_path / "copy" / name).read_text(), name


def test_where_weights_are_needed_a_graph_alone_is_refused_with_the_remedy(masked_lm, tmp_path, capsys):
    export_onnx(masked_lm, tmp_path / "out")
    assert main(["export", str(tmp_path / "out"), str(tmp_path / "again")]) == 2
    assert "exported from" in capsys.readouterr().err


@pytest.mark.parametrize("head", ["tagger", "classifier"])
@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_a_graph_is_described_as_its_weights_are(model_type, head, tmp_path):
    folder = save_tagger(tmp_path / "weights", config_of(model_type), head)
    export_onnx(folder, tmp_path / "onnx")
    assert describe(tmp_path / "onnx") == describe(folder)
    (tmp_path / "onnx" / FULL).rename(tmp_path / "onnx" / QUANTIZED)
    assert describe(tmp_path / "onnx") == describe(folder)


def test_info_takes_a_graph_alone(masked_lm, tmp_path, capsys):
    export_onnx(masked_lm, tmp_path / "out")
    capsys.readouterr()
    assert main(["info", str(tmp_path / "out"), "--json"]) == 0
    shipped = json.loads(capsys.readouterr().out)
    assert main(["info", str(masked_lm), "--json"]) == 0
    assert shipped == json.loads(capsys.readouterr().out)


def test_a_graph_of_another_maker_and_a_damaged_one_are_refused(masked_lm, tmp_path):
    other = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", ["x"], ["y"])],
            "other",
            [onnx.helper.make_tensor_value_info("x", 1, [1])],
            [onnx.helper.make_tensor_value_info("y", 1, [1])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 20)],
        ir_version=9,
    )
    (tmp_path / "other.onnx").write_bytes(other.SerializeToString())
    (tmp_path / "damaged.onnx").write_bytes(b"\x08\x09" * 100)
    for name, said in (("other.onnx", "was not written by bertkit"), ("damaged.onnx", "cannot be opened")):
        with pytest.raises(ValueError, match=rf"{name}.*{said}"):
            OnnxModel(tmp_path / name, TINY)
