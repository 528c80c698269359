"""The model of a folder, converted for other runtimes, in the layout that onnxruntime's users expect."""

import tempfile
from pathlib import Path

from bertkit.finetune.predict.tagger import Tagger
from bertkit.graph import Graph
from bertkit.hf.folder import EXPORT, FULL, QUANTIZED, carry_along, check_vocabulary, resolve
from bertkit.hf.models import Model, load, save_around
from bertkit.ship.gate import Gate, Passed, pass_gate
from bertkit.ship.int8 import quantized
from bertkit.ship.onnx_file import graph_of, onnx_bytes
from bertkit.ship.page import tagger_page
from data_pipelines import durable
from data_pipelines.vocab.tokenizer import load_tokenizer
from data_pipelines.vocab.tokenizer_file import has_tokenizer

CARD, PAGE = "README.md", "index.html"


def export_onnx(source: str | Path, folder: Path, gate: Gate | None = None) -> Model:
    """Write config.json, the tokenizer's files and onnx/model.onnx to a new folder, and onnx/model_quantized.onnx if it
    passes the gate; the model it was."""
    with durable.replacing_folder(folder) as unfinished:
        return _write_graphs(resolve(source), unfinished, gate)[0]


def export_page(source: str | Path, folder: Path, gate: Gate | None = None) -> Model:
    """Write index.html, which tags by itself, to a new folder: in float32, or in int8 if that passes the gate."""
    path = resolve(source).resolve()
    name = path.parent.name if path.name == EXPORT else path.name
    with durable.replacing_folder(folder) as unfinished, tempfile.TemporaryDirectory() as scratch:
        model, graph, output = _write_graphs(path, Path(scratch), gate)
        page = tagger_page(name, Tagger.load(scratch, backend="onnx"), graph, output)
        durable.write_file(unfinished / PAGE, page.encode())
    return model


def _write_graphs(source: Path, folder: Path, gate: Gate | None) -> tuple[Model, Graph, str]:
    """The folder with its graphs; the model, and the graph that passed, with the name of what it computes."""
    model = load(source)
    graph, output = graph_of(model)
    (folder / FULL).parent.mkdir()
    durable.write_file(folder / FULL, onnx_bytes(graph, output, model))
    write_around(model, source, folder)
    if gate is not None:
        passed = pass_gate(model, graph, output, folder, gate)
        add_to_card(folder / CARD, passed, gate)
        graph, output = quantized(graph, output, passed.kept)
    return model, graph, output


def write_around(model: Model, source: Path, folder: Path) -> None:
    """All of a model folder but the weights."""
    tokenizer = load_tokenizer(source) if has_tokenizer(source) else None
    if tokenizer is not None:
        check_vocabulary(tokenizer, model.config.vocab_size, source)
    save_around(model, folder, tokenizer)
    carry_along(source, folder)


def add_to_card(card: Path, passed: Passed, gate: Gate) -> None:
    """Say what int8 costs."""
    kept = f", but for {', '.join(f'`{name}`' for name in passed.kept)}" if passed.kept else ""
    lines = [
        "## int8",
        "",
        f"`{QUANTIZED}` computes in int8{kept}. Measured on {Path(gate.check).name}:",
        "",
        f"| weights | {passed.score} |",
        "| --- | ---: |",
        f"| float32 | {passed.full} |",
        f"| int8 | {passed.quantized} |",
        "",
    ]
    before = card.read_text(encoding="utf-8").rstrip() + "\n\n" if card.is_file() else ""
    durable.replace_file(card, (before + "\n".join(lines)).encode())
