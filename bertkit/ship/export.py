"""The model of a folder, written anew for other runtimes, in the layout that onnxruntime's users expect."""

import shutil
from pathlib import Path

from bertkit.finetune.predict.settings import SETTINGS
from bertkit.hf.folder import FULL, QUANTIZED, check_vocabulary, resolve
from bertkit.hf.layout import write_layout
from bertkit.hf.models import Model, layout_of, load
from bertkit.ship.gate import Gate, Passed, pass_gate
from bertkit.ship.onnx_file import graph_of, onnx_bytes
from data_pipelines import durable
from data_pipelines.vocab.tokenizer import load_tokenizer
from data_pipelines.vocab.tokenizer_file import has_tokenizer

CARD = "README.md"


def export_onnx(source: str | Path, folder: Path, gate: Gate | None = None) -> Model:
    """Write config.json, the tokenizer's files and onnx/model.onnx to a new folder, and onnx/model_quantized.onnx if it
    passes the gate; the model it was."""
    path = resolve(source)
    model = load(path)
    graph, output = graph_of(model)
    with durable.replacing_folder(folder) as unfinished:
        (unfinished / FULL).parent.mkdir()
        durable.write_file(unfinished / FULL, onnx_bytes(graph, output, model))
        write_around(model, path, unfinished)
        if gate is not None:
            passed = pass_gate(model, graph, output, unfinished, gate)
            add_to_card(unfinished / CARD, passed, gate)
    return model


def write_around(model: Model, source: Path, folder: Path) -> None:
    """All of a model folder but the weights."""
    tokenizer = load_tokenizer(source) if has_tokenizer(source) else None
    if tokenizer is not None:
        check_vocabulary(tokenizer, model.config.vocab_size, source)
        tokenizer.save(folder)
    write_layout(layout_of(model), folder, special_ids=getattr(tokenizer, "special", None))
    for name in (SETTINGS, CARD):
        if (source / name).is_file():
            shutil.copy(source / name, folder)


def add_to_card(card: Path, passed: Passed, gate: Gate) -> None:
    """Say what int8 costs."""
    kept = f" In float32 stay: {', '.join(f'`{name}`' for name in passed.kept)}." if passed.kept else ""
    lines = [
        "## int8",
        "",
        f"`{QUANTIZED}` computes in int8. Measured on {Path(gate.check).name}:{kept}",
        "",
        f"| weights | {passed.score} |",
        "| --- | ---: |",
        f"| float32 | {passed.full:.2f} |",
        f"| int8 | {passed.quantized:.2f} |",
        "",
    ]
    before = card.read_text(encoding="utf-8").rstrip() + "\n\n" if card.is_file() else ""
    durable.replace_file(card, (before + "\n".join(lines)).encode())
