"""transformers.js and optimum open an exported folder as it is and give the answers of the weights it was made
from; an old onnxruntime computes its graphs."""

import json
import os
import shutil
import subprocess
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from parity import ragged_batch
from reference import reference_transformers
from shipped import config_of, generated_sentences, model_of, save_tagger
from small_model import save_small_model

import bertkit
from bertkit.hf.folder import FULL, QUANTIZED
from bertkit.hf.model_types import MODEL_TYPES
from bertkit.model.heads import HEADS
from bertkit.ship.export import export_onnx
from bertkit.ship.int8 import quantized
from bertkit.ship.onnx_file import graph_of, onnx_bytes

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
transformers = reference_transformers()
torch.set_num_threads(1)
SUPPORT = Path(__file__).parent.parent / "support"
BYTE_LEVEL = ("roberta", "modernbert")
SENTENCES = generated_sentences(10, longest=12)
TASKS = {
    "tagger": ("token-classification", SENTENCES, {"ignore_labels": []}),
    "classifier": ("text-classification", SENTENCES, {}),
    "masked-lm": ("fill-mask", ["Anna [MASK] the old house"], {}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Of each model_type a tagger, and the other heads once: the weights, and what was exported of them."""
    home = tmp_path_factory.mktemp("others")
    made = {}
    for name in [*MODEL_TYPES, "classifier", "masked-lm"]:
        if name == "masked-lm":
            (home / "text.txt").write_text("\n".join(generated_sentences(40)), encoding="utf-8")
            source = save_small_model(home / "masked-lm-weights", home / "text.txt", vocab_size=200, positions=32)
        else:
            head, model_type = ("classifier", "bert") if name == "classifier" else ("tagger", name)
            kind = {"kind": "bpe", "vocab_size": 400} if name in BYTE_LEVEL else {}
            source = save_tagger(home / f"{name}-weights", config_of(model_type), head, **kind)
        export_onnx(source, home / name)
        model = bertkit.load(source)
        (home / name / QUANTIZED).write_bytes(onnx_bytes(*quantized(*graph_of(model)), model))
        made[name] = (TASKS.get(name, TASKS["tagger"]), source, home / name)
    return made


def test_the_files_hold_what_they_read(folders):
    for (task, _, _), _, folder in folders.values():
        config = json.loads((folder / "config.json").read_text())
        assert config["model_type"] in list(MODEL_TYPES)
        if task != "fill-mask":
            assert len(config["id2label"]) == len(config["label2id"]) > 1
        assert json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"]
        assert (folder / "tokenizer.json").is_file()
        for name in (FULL, QUANTIZED):
            graph = onnx.load(folder / name).graph
            inputs = {one.name: one.type.tensor_type for one in graph.input}
            assert {"input_ids", "attention_mask"} <= set(inputs) <= {"input_ids", "attention_mask", "token_type_ids"}
            assert all(one.elem_type == onnx.TensorProto.INT64 for one in inputs.values())
            assert all(dim.dim_param for one in inputs.values() for dim in one.shape.dim)
            assert [one.name for one in graph.output] == ["logits"]


def test_transformers_js_gives_the_same_answers(folders, tmp_path):
    installed = _installed("node_modules/@huggingface/transformers")
    command = [shutil.which("node") or "node", SUPPORT / "transformers_js.mjs", installed]
    _compare(command, folders, tmp_path)


def test_optimum_gives_the_same_answers(folders, tmp_path):
    python = _installed("optimum/bin/python") / "optimum/bin/python"
    _compare([python, SUPPORT / "optimum_answers.py"], folders, tmp_path)


def test_the_oldest_onnxruntime_that_is_allowed_computes_every_graph(tmp_path):
    python = _installed("oldest/bin/python") / "oldest/bin/python"
    ids, mask = ragged_batch(200, 1, [20, 3, 1, 13])
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    np.savez(tmp_path / "given.npz", **given)
    models = {f"{name} {kind}": model_of(config_of(name), kind) for name in MODEL_TYPES for kind in ["bare", *HEADS]}
    for name, model in models.items():
        graph = graph_of(model)
        (tmp_path / f"{name}.onnx").write_bytes(onnx_bytes(*graph, model))
        (tmp_path / f"{name} int8.onnx").write_bytes(onnx_bytes(*quantized(*graph), model))
    done = subprocess.run([python, SUPPORT / "onnxruntime_answers.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, model in models.items():
        with torch.inference_mode():
            expected = model(ids, mask).numpy()
        found, int8 = (np.load(tmp_path / f"{name}{kind}.npy") for kind in ("", " int8"))
        if expected.ndim == 3:
            found, int8, expected = (values[mask == 1] for values in (found, int8, expected))
        assert np.abs(found - expected).max() < 1e-4, name
        assert np.abs(int8 - expected).max() < 0.05 * np.abs(expected).max(), name


def _installed(name):
    """Where `make test-others` installed packages that the tests of every day do without."""
    folder = Path(os.environ.get("OTHERS", "nowhere"))
    if not (folder / name).exists():
        pytest.skip(f"NOT TESTED: OTHERS={folder} holds no {name}; `make test-others` installs it and runs this test")
    return folder


def _compare(command, folders, tmp_path):
    """In float32 every answer is the same; in int8, which need not be, nearly all are."""
    asked = [
        {"folder": str(folder), "task": task, "dtype": dtype, "texts": texts, "options": options}
        for (task, texts, options), _, folder in folders.values()
        for dtype in ("fp32", "q8")
    ]
    (tmp_path / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    done = subprocess.run([*command, tmp_path / "asked.json"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answers = iter(json.loads(done.stdout.splitlines()[-1]))
    for name, ((task, texts, options), source, _) in folders.items():
        theirs = transformers.pipeline(task, str(source))
        expected = [_told(theirs(text, **options)) for text in texts]
        full, int8 = ([_told(answer) for answer in next(answers)] for _ in range(2))
        assert full == expected, name
        pairs = zip(chain(*int8), chain(*expected), strict=True)
        assert np.mean([one == other for one, other in pairs]) > 0.8, name


def _told(answer):
    """What decides: the tags, the label, the tokens."""
    return [one.get("entity") or one.get("label") or one["token"] for one in answer]
