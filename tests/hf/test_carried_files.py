"""What stands beside the weights of a folder goes with them; weights of others, code and pickles do not."""

import json

import pytest
from tiny import TINY

import bertkit
from bertkit.cli import main
from bertkit.model import build_encoder
from bertkit.ship.export import export_onnx

CARRIED = {
    "README.md": "---\nlicense: mit\n---\n",
    "generation_config.json": "{}",
    "sentencepiece.bpe.model": "pieces",
    "chat_template.jinja": "{{ text }}",
    "1_Pooling/config.json": '{"pooling_mode_mean_tokens": true}',
    "2_Dense/model.safetensors": "weights of a part",
}
LEFT = ["modeling.py", "training_args.bin", "pytorch_model.bin.index.json", "checkpoint-5/README.md", "2_Dense/a.pt"]
MODULES = ["", "1_Pooling", "2_Dense", "..", "../other", "absent", "/etc", 5]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    source = tmp_path / "source"
    bertkit.save(build_encoder(TINY), source)
    modules = json.dumps([{"idx": index, "path": name} for index, name in enumerate(MODULES)])
    for name, text in {**CARRIED, **dict.fromkeys(LEFT, "no"), "modules.json": modules}.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text)
    return source


@pytest.mark.parametrize("verb", ["import", "export", "onnx"])
def test_what_is_not_understood_is_carried_along(verb, folder, tmp_path):
    if verb == "onnx":
        pytest.importorskip("onnx")
        export_onnx(folder, tmp_path / "out")
    else:
        assert main([verb, str(folder), str(tmp_path / "out")]) == 0
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    weights = "onnx/model.onnx" if verb == "onnx" else "model.safetensors"
    assert found == {*CARRIED, "modules.json", "config.json", weights}
    for name, text in CARRIED.items():
        assert (tmp_path / "out" / name).read_text() == text
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "bert"


@pytest.mark.parametrize("modules", ["{}", "[]", '[{"type": "x"}]', "[1]", "no JSON"])
def test_a_list_of_parts_that_is_none_is_carried_along_too(modules, folder, tmp_path):
    (folder / "modules.json").write_text(modules)
    assert main(["export", str(folder), str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "modules.json").read_text() == modules
    assert not (tmp_path / "out" / "1_Pooling").exists()
