"""A folder with an ONNX graph is used like one with weights: the same tags, and no torch."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shipped import LABELS, generated_sentences, save_tagger
from small_model import save_small_model
from tiny import TINY, TINY_MODERN

import bertkit
from bertkit.cli import main
from bertkit.hf.folder import BACKENDS, FULL, choose_backend
from bertkit.hf.onnx import num_threads
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
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({HEAVY!r}))\n")
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


def test_a_tagger_is_scored_without_torch_as_with_it(folders, without_torch, tmp_path, capsys):
    gold = tmp_path / "gold.conll"
    gold.write_text("".join(f"{word}\tB-PER\n" for word in generated_sentences(1)[0].split()), encoding="utf-8")
    if (folders / "torch" / "tagging.json").is_file():
        name = str(gold)
    else:
        name = str(tmp_path / "gold.jsonl")
        Path(name).write_text(json.dumps({"text": generated_sentences(1)[0], "label": LABELS[0]}), encoding="utf-8")
    main(["evaluate", str(folders / "torch"), name, "--json"])
    expected = json.loads(capsys.readouterr().out)
    found = json.loads(without_torch("evaluate", str(folders / "onnx"), name, "--json"))
    errors = [scores.pop("calibration", {"error": 0.0})["error"] for scores in (found, expected)]
    assert errors[0] == pytest.approx(errors[1], abs=1e-4)
    assert found == expected
    assert f"{expected['accuracy']:.2%}" in without_torch("evaluate", str(folders / "onnx"), name)


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked-lm")
    text = folder / "text.txt"
    text.write_text("".join(f"{sentence}\n\n" for sentence in generated_sentences(40)), encoding="utf-8")
    save_small_model(folder / "torch", text, vocab_size=200, positions=32)
    export_onnx(folder / "torch", folder / "onnx")
    return folder


@pytest.mark.parametrize("order", ["left-to-right", "easiest-first", "together"])
def test_masks_are_filled_without_torch_as_with_it(masked_lm, without_torch, order, capsys):
    arguments = ["--order", order, "--json", "Anna [MASK] the [MASK] near [SPAN]."]
    main(["fill", "--model", str(masked_lm / "torch"), *arguments])
    expected = json.loads(capsys.readouterr().out)
    found = json.loads(without_torch("fill", "--model", str(masked_lm / "onnx"), *arguments))
    assert found["filled"] == expected["filled"]
    for ours, theirs in zip(found["masks"], expected["masks"], strict=True):
        assert [one["id"] for one in ours] == [one["id"] for one in theirs]
        assert [one["probability"] for one in ours] == pytest.approx([one["probability"] for one in theirs], rel=1e-4)


def test_a_masked_language_model_is_scored_without_torch_as_with_it(masked_lm, without_torch, capsys):
    arguments = [str(masked_lm / "text.txt"), "--seq-len", "32", "--words", "30", "--json"]
    main(["evaluate", str(masked_lm / "torch"), *arguments])
    expected = json.loads(capsys.readouterr().out)
    found = json.loads(without_torch("evaluate", str(masked_lm / "onnx"), *arguments))
    for scores in (found, expected):
        scores |= {f"{name} {key}": value for name, row in scores.pop("buckets").items() for key, value in row.items()}
        scores |= scores.pop("pseudo_perplexity")
    assert found == pytest.approx(expected, rel=1e-4)
    assert expected["targets"] > 100


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


def test_of_several_the_fastest_with_the_same_tags_computes_until_the_weights_change(tmp_path):
    folder = save_tagger(tmp_path / "tagger", TINY)
    export_onnx(folder, tmp_path / "onnx")
    assert choose_backend(folder) == "torch"
    shutil.copytree(tmp_path / "onnx" / "onnx", folder / "onnx")
    assert choose_backend(folder) == "onnx"
    assert choose_backend(folder, device="cuda") == "torch"
    other = (folder / FULL).read_bytes().replace(b"bertkit", b"another", 1)
    (folder / FULL).write_bytes(other)
    assert choose_backend(folder) == "torch"
    bertkit.save(bertkit.load(folder), folder)
    assert not (folder / FULL).exists()
    with pytest.raises(ValueError, match="'fast'"):
        choose_backend(folder, "fast")


@pytest.mark.parametrize(
    ("asked", "usable", "threads"), [("3", 1, 3), ("4,2", 8, 4), ("", 8, 0), ("", 2, 2), ("many", 2, 2)]
)
def test_a_graph_takes_the_threads_that_are_asked_for_or_that_the_process_may_use(asked, usable, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(usable)), raising=False)
    assert num_threads() == threads


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
