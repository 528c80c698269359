"""int8 loses no more than the gate allows; what a token becomes does not depend on the rows beside it."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from shipped import config_of, generated_sentences, model_of, save_tagger
from tiny import TINY, TINY_MODERN

import bertkit
from bertkit.cli import main
from bertkit.hf.folder import FULL, QUANTIZED
from bertkit.hf.onnx import OnnxModel
from bertkit.model.heads import HEADS
from bertkit.ship.export import export_onnx
from bertkit.ship.gate import Gate
from bertkit.ship.int8 import LARGEST, _uses, quantized, weights_to_quantize
from bertkit.ship.onnx_file import graph_of, onnx_bytes
from data_pipelines import MaskingCollator
from data_pipelines.vocab.tokenizer import load_tokenizer

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch.set_num_threads(1)


@pytest.mark.parametrize("kind", ["bare", *HEADS])
@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_int8_is_near_and_the_same_whatever_stands_beside(model_type, kind):
    model = model_of(config_of(model_type), kind)
    graph, output = graph_of(model)
    full, int8 = (
        OnnxModel(onnx_bytes(*each, model), model.config) for each in ((graph, output), quantized(graph, output))
    )
    rows = [np.arange(3, 15), np.arange(7, 10)]
    assert np.abs(full(rows) - int8(rows))[0].max() < 0.05 * np.abs(full(rows)[0]).max()
    np.testing.assert_array_equal(int8(rows)[1].ravel()[:3], int8(rows[1:])[0].ravel()[:3])


def test_weights_are_scaled_by_channel_and_fit_the_range_that_every_processor_adds_without_overflow():
    model = model_of(TINY_MODERN, "tagger")
    graph, output = graph_of(model)
    made, _ = quantized(graph, output)
    for name in weights_to_quantize(graph):
        whole, scale = made.weights[f"{name}.int8"], made.weights[f"{name}.scale"]
        assert np.abs(whole).max() == LARGEST
        assert np.abs(whole * scale - graph.weights[name]).max() <= scale.max() / 2 * 1.001
    # Two products of 8 bits are added in 16 where there is no VNNI.
    assert 2 * 255 * LARGEST < 2**15


@pytest.mark.parametrize("kind", ["tagger", "masked-lm"])
def test_onnxruntime_computes_every_product_with_weights_in_int8(kind, tmp_path):
    model = model_of(TINY_MODERN, kind)
    graph, output = graph_of(model)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(onnx_bytes(*quantized(graph, output), model), options)
    operators = Counter(node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node)
    assert operators["MatMulIntegerToFloat"] == sum(node.op == "MatMul" for node, _ in _uses(graph))
    assert "DequantizeLinear" not in operators


def test_what_is_kept_stays_as_it_was():
    model = model_of(TINY, "tagger")
    graph, output = graph_of(model)
    names = weights_to_quantize(graph)
    made, _ = quantized(graph, output, kept=names)
    assert set(names) <= made.weights.keys()
    assert not [name for name in made.weights if name.endswith(".int8")]
    made, _ = quantized(graph, output, kept=names[1:])
    assert f"{names[0]}.int8" in made.weights
    assert names[0] not in made.weights


@pytest.fixture
def gold(tmp_path):
    """A function that writes, as gold labels, what a tagger in float32 says itself."""

    def write(folder):
        blocks = []
        for found in bertkit.Tagger.load(folder).tag_all([s.split() for s in generated_sentences(60, longest=12)]):
            blocks.append("".join(f"{word}\t{tag}\n" for word, tag in zip(found.words, found.tags, strict=True)))
        (tmp_path / "gold.conll").write_text("\n".join(blocks), encoding="utf-8")
        return str(tmp_path / "gold.conll")

    return write


def export(source, folder, *more):
    return main(["export", str(source), str(folder), "--format", "onnx", *more])


def test_a_good_model_passes_and_its_card_tells_both_scores(gold, tmp_path, capsys):
    folder = save_tagger(tmp_path / "tagger", TINY_MODERN)
    check = gold(folder)
    assert export(folder, tmp_path / "out", "--int8", "--check", check, "--max-loss", "8") == 0
    said = capsys.readouterr().out
    assert "float32 100.00" in said
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| float32 | 100.00 |" in card
    assert "gold.conll" in card
    assert (tmp_path / "out" / QUANTIZED).is_file()
    words = generated_sentences(1, longest=30)[0].split()
    tagger = bertkit.Tagger.load(tmp_path / "out", backend="int8")
    assert len(tagger.tag(words).tags) == len(words)


def damage(folder, layers):
    """Another form of the same function: in every sum one channel is ten thousand times larger and what it multiplies
    as much smaller, which float32 does not mind and int8 cannot hold."""
    model = bertkit.load(folder)
    with torch.no_grad():
        encoder = model if model.kind == "bare" else model.encoder
        for layer in list(encoder.layers)[layers]:
            width, inner = layer.attention_out.in_features, layer.mlp_out.in_features
            for norm, linear in ((layer.attention_norm, layer.attention_in), (layer.mlp_norm, layer.mlp_in)):
                if norm is not None:
                    norm.weight[0] /= 1e4
                    linear.weight[:, 0] *= 1e4
            layer.attention_in.weight[2 * width] /= 1e4
            layer.attention_out.weight[:, 0] *= 1e4
            layer.mlp_in.weight[inner] /= 1e4
            layer.mlp_out.weight[:, 0] *= 1e4
    bertkit.save(model, folder)


def test_a_model_damaged_on_purpose_is_refused_and_nothing_is_written(gold, tmp_path, capsys):
    folder = save_tagger(tmp_path / "tagger", TINY_MODERN)
    before = [found.tags for found in bertkit.Tagger.load(folder).tag_all(generated_sentences(20))]
    damage(folder, slice(None))
    assert [found.tags for found in bertkit.Tagger.load(folder).tag_all(generated_sentences(20))] == before
    assert export(folder, tmp_path / "out", "--int8", "--check", gold(folder)) == 2
    assert "--max-loss 0.3" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def learn(model, tokenizer):
    """A little of what masked tokens are; a model that knows nothing has nothing to lose."""
    collate = MaskingCollator(tokenizer, seed=0)
    rows = [tokenizer.backend.encode(sentence).ids[:32] for sentence in generated_sentences(60)]
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(40):
        batch = collate(rows)
        logits = model(batch["input_ids"], batch["attention_mask"])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("kind", ["masked-lm", "bare"])
def test_without_labels_text_decides(kind, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(generated_sentences(60)), encoding="utf-8")
    tokenizer = load_tokenizer(save_tagger(tmp_path / "tagger", TINY_MODERN))
    model = model_of(replace(TINY_MODERN, vocab_size=tokenizer.vocab_size), kind)
    if kind == "masked-lm":
        learn(model, tokenizer)
    bertkit.save(model, tmp_path / "good", tokenizer)
    assert export(tmp_path / "good", tmp_path / "out", "--int8", "--check", str(text), "--max-loss", "8") == 0
    name = {"masked-lm": "masked loss", "bare": "similarity to float32"}[kind]
    assert name in capsys.readouterr().out
    assert f"| weights | {name} |" in (tmp_path / "out" / "README.md").read_text()
    damage(tmp_path / "good", slice(None))
    assert export(tmp_path / "good", tmp_path / "bad", "--int8", "--check", str(text), "--max-loss", "0.3") == 2
    assert f"points of {name}" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()


def test_a_file_on_which_float32_scores_nothing_cannot_show_a_loss(tmp_path, capsys):
    folder = save_tagger(tmp_path / "tagger", TINY)
    (tmp_path / "other.conll").write_text("Anna\tB-CITY\npaints\tO\n", encoding="utf-8")
    assert export(folder, tmp_path / "out", "--int8", "--check", str(tmp_path / "other.conll")) == 2
    said = capsys.readouterr().err
    assert "other.conll" in said
    assert "B-PER" in said
    assert not (tmp_path / "out").exists()


def test_the_layers_that_hurt_most_stay_in_float32_and_are_named(gold, tmp_path, capsys):
    folder = save_tagger(tmp_path / "tagger", TINY_MODERN)
    damage(folder, slice(1, 2))
    export_onnx(folder, tmp_path / "out", Gate(gold(folder), max_loss=8))
    kept = capsys.readouterr().out.splitlines()[-1].partition(", with ")[2].removesuffix(" in float32").split(", ")
    assert set(kept) >= {"encoder.layers.1.attention_in.weight", "encoder.layers.1.mlp_in.weight"}
    assert f"`{kept[0]}`" in (tmp_path / "out" / "README.md").read_text()
    assert (tmp_path / "out" / FULL).stat().st_size > (tmp_path / "out" / QUANTIZED).stat().st_size / 2


def test_an_int8_that_nobody_measures_is_not_written(tmp_path, capsys):
    folder = save_tagger(tmp_path / "tagger", TINY)
    for words, said in (
        (["--int8"], "--check"),
        (["--check", str(folder / "config.json")], "--int8"),
        (["--int8", "--check", "nowhere.conll"], "nowhere.conll"),
        (["--int8", "--check", str(folder / "config.json"), "--max-loss", "-1"], "-1"),
    ):
        assert export(folder, tmp_path / "out", *words) == 2
        assert said in capsys.readouterr().err
    assert main(["export", str(folder), str(tmp_path / "out"), "--int8", "--check", "x"]) == 2
    assert json.loads((folder / "config.json").read_text())["model_type"] == "bert"
