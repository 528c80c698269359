"""A folder with an ONNX graph is used like one with weights: the same tags, and no torch."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shipped import LABELS, generated_sentences, save_tagger
from tiny import TINY, TINY_MODERN

import bertkit
from bertkit.cli import main
from bertkit.finetune.predict.backends import BACKENDS
from bertkit.ship.export import export_onnx

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch.set_num_threads(1)
ROOT = Path(__file__).parent.parent.parent
HEAVY = ("torch", "safetensors", "accelerate", "datasets", "pyarrow", "huggingface_hub", "yaml", "rich", "onnx")
"""What an installation without torch has not."""


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory):
    """Runs the command where none of these packages can be imported; what it printed."""
    folder = tmp_path_factory.mktemp("without")
    for name in HEAVY:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}')\n")
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "OMP_NUM_THREADS": "1"}

    def run(*arguments, exits=0, command=("-m", "bertkit")):
        done = subprocess.run([sys.executable, *command, *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == exits, done.stderr
        return done.stdout if exits == 0 else done.stderr

    return run


MODELS = {
    "bert": (TINY, "tagger", {}),
    "modernbert, bpe": (replace(TINY_MODERN, local_attention=6), "tagger", {"kind": "bpe", "vocab_size": 400}),
    "classifier": (TINY, "classifier", {}),
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def folders(request, tmp_path_factory):
    config, kind, tokenizing = request.param
    folder = tmp_path_factory.mktemp("shipped")
    save_tagger(folder / "torch", config, kind, max_length=16, **tokenizing)
    export_onnx(folder / "torch", folder / "onnx")
    return folder


def test_tags_are_those_of_torch_and_confidences_nearly(folders):
    sentences = generated_sentences(100)
    ours, theirs = (list(bertkit.Tagger.load(folders / name).tag_all(sentences)) for name in ("onnx", "torch"))
    assert [tagging.tags for tagging in ours] == [tagging.tags for tagging in theirs]
    assert len({tag for tagging in theirs for tag in tagging.tags}) > 2
    for one, other in zip(ours, theirs, strict=True):
        assert one.confidences == pytest.approx(other.confidences, abs=1e-4)
        assert [span[:4] for span in one.spans] == [span[:4] for span in other.spans]


def test_the_verb_answers_without_torch_as_it_does_with_it(folders, without_torch, tmp_path, capsys):
    file = tmp_path / "new.txt"
    file.write_text("\n".join(generated_sentences(20)), encoding="utf-8")
    main(["tag", "--model", str(folders / "torch"), str(file), "--output", "conll"])
    assert without_torch("tag", "--model", str(folders / "onnx"), str(file), "--output", "conll") == (
        capsys.readouterr().out
    )


def test_the_tagger_of_python_needs_no_torch_either(folders, without_torch):
    code = f"import bertkit; print(bertkit.Tagger.load({str(folders / 'onnx')!r}).tag('Anna paints').tags)"
    assert without_torch(command=("-c", code)).strip() == str(
        bertkit.Tagger.load(folders / "torch").tag("Anna paints").tags
    )


def test_what_a_folder_or_an_installation_lacks_is_told_with_the_remedy(folders, without_torch, tmp_path, capsys):
    lacking = without_torch("tag", "--model", str(folders / "torch"), exits=2)
    assert "torch" in lacking
    assert "pip install bertkit" in lacking
    assert main(["tag", "--model", str(folders / "onnx"), "--backend", "int8", str(ROOT / "LICENSE")]) == 2
    assert "--int8" in capsys.readouterr().err
    assert main(["tag", "--model", str(folders / "onnx"), "--backend", "torch", str(ROOT / "LICENSE")]) == 2
    assert "exported from" in capsys.readouterr().err
    assert main(["tag", "--model", str(folders / "onnx"), "--device", "cuda", str(ROOT / "LICENSE")]) == 2
    assert "'cuda'" in capsys.readouterr().err


def test_an_encoder_without_labels_is_refused(tmp_path, capsys):
    from bertkit.model import build_encoder
    from data_pipelines.vocab.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(save_tagger(tmp_path / "tagger", TINY))
    bertkit.save(build_encoder(replace(TINY, vocab_size=300)), tmp_path / "bare", tokenizer)
    export_onnx(tmp_path / "bare", tmp_path / "onnx")
    assert main(["tag", "--model", str(tmp_path / "onnx"), str(ROOT / "LICENSE")]) == 2
    assert "holds a bare" in capsys.readouterr().err


def test_labels_and_backends_are_told(tmp_path):
    export_onnx(save_tagger(tmp_path / "tagger", TINY), tmp_path / "onnx")
    assert list(bertkit.Tagger.load(tmp_path / "onnx", backend="onnx").labels) == LABELS
    assert BACKENDS[0] == "auto"
    assert json.loads((tmp_path / "onnx" / "config.json").read_text())["id2label"]["1"] == LABELS[1]
