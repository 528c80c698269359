"""The model of a folder, written anew for other runtimes, in the layout that onnxruntime's users expect."""

import shutil
from pathlib import Path

from bertkit.finetune.predict.settings import SETTINGS
from bertkit.hf.folder import FULL, check_vocabulary, resolve
from bertkit.hf.layout import write_layout
from bertkit.hf.models import Model, layout_of, load
from bertkit.ship.onnx_file import graph_of, onnx_bytes
from data_pipelines import durable
from data_pipelines.vocab.tokenizer import load_tokenizer
from data_pipelines.vocab.tokenizer_file import has_tokenizer

CARD = "README.md"


def export_onnx(source: str | Path, folder: Path) -> Model:
    """Write config.json, the tokenizer's files and onnx/model.onnx to a new folder; the model it was."""
    path = resolve(source)
    model = load(path)
    graph, output = graph_of(model)
    with durable.replacing_folder(folder) as unfinished:
        (unfinished / FULL).parent.mkdir()
        durable.write_file(unfinished / FULL, onnx_bytes(graph, output, model))
        write_around(model, path, unfinished)
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
